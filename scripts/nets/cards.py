"""What the README of each model says: title, learned parameters of the deploy net, published result, notes."""

IMAGENET = ("data: `cortado convert images --list=train.txt --root=DIR --to=data/imagenet/train_lmdb --resize=256x256`, "
            "the same of `val.txt` to `data/imagenet/val_lmdb`")
CIFAR = "data: `cortado convert cifar10 --from=DIR --to=data/cifar10`"
PTB = "data: `cortado convert text --from=DIR --to=data/ptb` (`ptb.train.txt`, `ptb.valid.txt`, `ptb.test.txt`)"
UNTRAINED = "Not trained to the end here: ImageNet is not at hand."
BATCHES = "`batch_size` is of a rank; the rates fit a global batch of 256."

GPT2 = ("data: `cortado convert text --from=DIR --to=data/gpt2 --tokenizer=tokenizer.json`, with the `tokenizer.json` of GPT-2 and a "
        "folder of `train.txt` and `valid.txt`")
GPT2_NOTES = ["Weights: `--weights=model.safetensors` of Hugging Face's files; [language models](../../docs/language-models.md).",
              "The head is the table of tokens, and counts once. No dropout; rates are those of the GPT-3 of that size.",
              "Not trained here."]
BERT = ("data: `cortado convert text --from=DIR --to=data/bert --tokenizer=tokenizer.json`, with the `tokenizer.json` of "
        "`bert-base-uncased`")

CARDS = {
    "alexnet": ("AlexNet", 60965224, "57.1 % top-1, 80.2 % top-5 (Caffe's bvlc_alexnet)", IMAGENET, [UNTRAINED]),
    "alexnet_bn": ("AlexNet with BatchNorm", 60982984, "none that is told apart from its system's", IMAGENET, [
        "BatchNorm and Scale behind each convolution and each of fc6 and fc7, no LRN; the convolutions have no bias, "
        "which BatchNorm would take off. swCaffe's paper says that LRN became BN and gives no prototxt.", UNTRAINED]),
    "bert_base": ("BERT base", 108891648, "110M with the layer that reads [CLS]", BERT, [
        "The deploy net takes `tokens`, `types` and `mask` as BERT mini's, and gives the states of the last block, `N x T x 768`. "
        "Weights: those of `bert-base-uncased`, without its two heads.", "Not trained here."]),
    "bert_mini": ("BERT mini", 11201594, "none of the loss alone", BERT, [
        "The deploy net takes `tokens`, `types` (0, 1 for a second text) and `mask` (1, and 0 behind a short text), and gives the "
        "scores of the tokens that are hidden.",
        "1000 steps of 16 x 128 tokens of War and Peace (`seq_len: 128 batch_tokens: 2048 base_lr: 0.0005 warmup { iterations: 100 } "
        "max_iter: 1000`) end at 6.07 nats a hidden token of the validation text, from 10.3. Not trained to the end here."]),
    "caffenet": ("CaffeNet", 60965224, "57.4 % top-1, 80.4 % top-5 (Caffe's bvlc_reference_caffenet)", IMAGENET,
                 [UNTRAINED]),
    "cifar10_full": ("CIFAR-10 full", 89578, "about 81 % (Caffe's example)", CIFAR, [
        "Mean values of the colours in place of Caffe's mean image; biases do not decay."]),
    "densenet121": ("DenseNet-121", 7978856, "25.0 % top-1 error, 7.7 % top-5", IMAGENET, [BATCHES, UNTRAINED]),
    "fcn8s": ("FCN-8s on VGG-16", 134368799, "62.7 % mean IU on PASCAL VOC 2011",
              "data: two LMDBs of equal size, images and label maps (one channel, 255: ignored), 500 x 500", [
                  "Upsampling class by class (`group: 21`), where the authors fill the diagonal of 21 x 21 kernels with a "
                  "script: 120 960 fewer weights, all of them zeros that never learn.",
                  "Trained at once, from weights of VGG-16 (`--weights`), where the authors went over FCN-32s and 16s; "
                  "the upsampling starts bilinear and learns at rate 0 as theirs.",
                  "Images are padded to one size: shapes are fixed when a net is made.", "Not trained to the end here."]),
    "googlenet": ("GoogLeNet", 6998552, "68.7 % top-1, 88.9 % top-5 (Caffe's bvlc_googlenet)", IMAGENET, [
        "13 378 280 parameters with the two auxiliary heads, which only training has.", UNTRAINED]),
    "gpt2": ("GPT-2, 124 M", 124439808, "perplexity 29.41 on WikiText-2, without training on it", GPT2, GPT2_NOTES + [
        "On two cores that reach 354 GFLOP/s a step of one sequence of 1024 tokens takes 3.2 s; with `recompute: NEVER` it was 1.27 "
        "times as fast as PyTorch 2.15 there. As it is here one sequence takes 2.5 GB, four take 4.0 ([figures](../../docs/results/2026-11-27-language-models.md))."]),
    "gpt2_medium": ("GPT-2, 355 M", 354823168, "perplexity 22.76 on WikiText-2, without training on it", GPT2, GPT2_NOTES),
    "gpt2_large": ("GPT-2, 774 M", 774030080, "perplexity 19.93 on WikiText-2, without training on it", GPT2, GPT2_NOTES),
    "gpt2_xl": ("GPT-2, 1.5 B", 1557611200, "perplexity 18.34 on WikiText-2, without training on it", GPT2, GPT2_NOTES),
    "gpt_char": ("GPT on characters", 10795008, "none of this text", "data: `cortado convert text --from=DIR --to=data/warandpeace "
                 "--tokenizer=char`, with a folder of the text's parts, `*train*.txt` and `*valid*.txt`", [
                     "128 characters fit; a text with more wants its number in `vocabulary`, `input_dim` and the head's `num_output`.",
                     "500 steps (`max_iter: 500`) on War and Peace end at 1.81 to 1.82 nats a character of the validation text, PyTorch's "
                     "at 1.81 to 1.84 ([figures](../../docs/results/2026-11-27-language-models.md)). They take ten minutes on two cores."]),
    "inception_v3": ("Inception-v3", 23834568, "21.2 % top-1 error, 5.6 % top-5, one crop", IMAGENET.replace("256x256", "320x320"), [
        "Momentum in place of RMSProp, no smoothed labels; the auxiliary head, which only training has, has 3 326 696 more "
        "parameters.", UNTRAINED]),
    "lenet": ("LeNet on MNIST", 431080, "99.1 %", "data: `cortado convert mnist --from=DIR --to=data/mnist`", [
        "`tests/long/lenet_mnist.sh` trains it."]),
    "llama_135m": ("Llama, 135 M", 134515008, "none that is told apart from its data", "data: `cortado convert text --from=DIR "
                   "--to=data/smollm --tokenizer=tokenizer.json`, with the `tokenizer.json` of SmolLM2", [
                       "Weights: `--weights=model.safetensors` or a GGUF of SmolLM2-135M; [language models](../../docs/language-models.md).",
                       "With SmolLM2-135M's weights the perplexity of WikiText-2's validation text is 22.18, as in transformers "
                       "([figures](../../docs/results/2026-11-27-language-models.md)).",
                       "The rate is chosen here, not theirs. Not trained here."]),
    "lstm": ("LSTM language model, small", 4651600, "perplexity 114.5 on the test text", PTB, [
        "Trained here as it is (30 199 steps, one rank, 2 threads): perplexity 118.6 on the validation text, 114.0 on the test text: "
        "`cortado test --model=models/lstm/train_val.prototxt --weights=lstm_iter_30199.caffemodel.h5 --iterations=3933 "
        "--set=batch_size=1 --set='layer[data].text_data_param.source=data/ptb/test.h5'`.",
        "`train_val_1500.prototxt` is the large model with the small one's data, for timing."]),
    "lstm_large": ("LSTM language model, large", 66022000, "perplexity 78.4 on the test text", PTB, ["Not trained here."]),
    "lstm_medium": ("LSTM language model, medium", 19775200, "perplexity 82.7 on the test text", PTB,
                    ["Not trained here."]),
    "minilm": ("MiniLM, 6 layers", 22565377, "embeddings of sentences", BERT, [
        "The deploy net gives `embedding`: the mean over the tokens of `mask`, of length 1. Weights: those of all-MiniLM-L6-v2.",
        "Those weights give transformers' embeddings, to 9.1e-7 ([figures](../../docs/results/2026-11-27-language-models.md)).",
        "Training is that of BERT: hidden tokens. The authors learn from a larger model, which is not built.", "Not trained here."]),
    "mobilenet_v1": ("MobileNet v1", 4231976, "70.6 % top-1", IMAGENET, [
        "Depthwise convolutions are `group: C`; ReLU where the paper's code has ReLU6, as in nets for Caffe.", BATCHES,
        UNTRAINED]),
    "mobilenet_v2": ("MobileNet v2", 3504872, "72.0 % top-1", IMAGENET, [
        "Depthwise convolutions are `group: C`; ReLU where the paper has ReLU6, as in nets for Caffe.", BATCHES,
        UNTRAINED]),
    "quick": ("CIFAR-10 quick", 145578, "about 75 % (Caffe's example)", CIFAR, []),
    "resnet20": ("ResNet-20", 272474, "91.25 % in 64 000 steps", CIFAR, [
        "Projections (option B) where the paper's CIFAR nets pad with zeros (A): 2 752 parameters more than 269 722.",
        "`solver_40_epochs.prototxt`: 15 600 steps, half a cosine, Nesterov, weight decay 0.0005. Trained here, one rank with 2 threads, "
        "on all 50 000 images as lossy JPEGs (0.9 kB each in the mean; `cortado convert images`): 87.77 % of the 10 000 test JPEGs. The published "
        "settings with the steps 7 000, 10 500 and 14 000 in place of 32 000, 48 000 and 64 000: 85.67 %."]),
    "resnet44": ("ResNet-44", 661338, "92.83 % in 64 000 steps", CIFAR, ["As ResNet-20.", "Not trained to the end here."]),
    "resnet50": ("ResNet-50", 25557032, "24.7 % top-1 error, 7.8 % top-5, one crop", IMAGENET, [BATCHES, UNTRAINED]),
    "resnet101": ("ResNet-101", 44549160, "23.6 % top-1 error, 7.1 % top-5, one crop", IMAGENET, [BATCHES, UNTRAINED]),
    "resnet152": ("ResNet-152", 60192808, "23.0 % top-1 error, 6.7 % top-5, one crop", IMAGENET, [BATCHES, UNTRAINED]),
    "senet50": ("SE-ResNet-50", 28088024, "23.3 % top-1 error, 6.6 % top-5, one crop", IMAGENET, [
        "Gates by Scale on the first axes, so two small InnerProducts take the place of 1 x 1 convolutions.", BATCHES,
        UNTRAINED]),
    "squeezenet": ("SqueezeNet 1.1", 1235496, "57.5 % top-1, 80.3 % top-5 at least", IMAGENET, [UNTRAINED]),
    "ssd300": ("SSD 300 x 300 on VGG-16", 26285486, "74.3 % mAP on PASCAL VOC 2007", (
        "data: `data/voc/train_lmdb` and `test_lmdb`, images with boxes: `cortado convert annotated --from=VOC --to=data/voc` makes "
        "them of PASCAL VOC's files, and those of Caffe-SSD are read as they are"), [
            "8 images a rank and `iter_size: 4` make the authors' 32 on one rank; the loss is divided by the matches of one such part, "
            "as theirs is on several GPUs. With 4 ranks set `iter_size: 1`.",
            "The authors' samplers, distortions and expansion ([boxes](../../docs/data.md#boxes)); with the expansion, which came later "
            "than the paper's first version, they report 77.2 %.",
            "The test net tells its loss, and as `detection_eval` the mean average precision of VOC 2007 (`ap_version: \"11point\"`); 619 "
            "batches are the 4952 images of its test set on one rank. The deploy net ends in DetectionOutput.",
            "Start from weights of VGG-16 (`--weights`); the authors cut fc6 and fc7 down.",
            "`cortado new --from=ssd300 --data=DIR --to=DIR` fits it to other classes.", "Not trained to the end here."]),
    "vgg16": ("VGG-16", 138357544, "25.6 % top-1 error, 8.1 % top-5", IMAGENET, [UNTRAINED]),
    "vgg16_cifar": ("VGG-16 for CIFAR-10", 14724042, "none in the papers in this form", CIFAR, [
        "BatchNorm behind each convolution, one fully connected layer of 512.", "Not trained to the end here."]),
    "vgg19": ("VGG-19", 143667240, "25.5 % top-1 error, 8.0 % top-5", IMAGENET, [UNTRAINED]),
}
