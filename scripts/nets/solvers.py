"""The settings that each net is trained with."""
from .words import zaremba


def sgd(rate, decay, policy, iterations, test_iter=1000, test_interval=5000, display=20, snapshot=10000, more=""):
    return (f"test_iter: {test_iter}\ntest_interval: {test_interval}\n{more}base_lr: {rate}\nmomentum: 0.9\n"
            f"weight_decay: {decay}\n{policy}max_iter: {iterations}\ndisplay: {display}\nsnapshot: {snapshot}\n")


def multistep(gamma, *steps):
    return f'lr_policy: "multistep"\ngamma: {gamma}\n' + "".join(f"stepvalue: {s}\n" for s in steps)


def step(gamma, size):
    return f'lr_policy: "step"\ngamma: {gamma}\nstepsize: {size}\n'


def adamw(rate, lowest, momentum2, warmup, iterations, test_iter, test_interval, more=""):
    """The usual recipe of GPTs: half a cosine behind a warm-up; norms and biases do not decay."""
    return (f'type: "AdamW"\ntest_iter: {test_iter}\ntest_interval: {test_interval}\n{more}base_lr: {rate:g}\n'
            f'lr_policy: "cosine"\nmin_lr: {lowest:g}\nwarmup {{ iterations: {warmup} policy_after: true }}\n'
            f"momentum: 0.9\nmomentum2: {momentum2}\nweight_decay: 0.1\ndecay_rule: MATRICES\nclip_gradients: 1\n"
            f"max_iter: {iterations}\n")


CIFAR = sgd(0.1, 0.0001, multistep(0.1, 32000, 48000), 64000, 100, 500, 100, 8000)
RESNET = ("test_iter: 1000\ntest_interval: 5000\nbase_lr: 0.1\nmomentum: 0.9\nweight_decay: 0.0001\n"
          'lr_policy: "multistep"\ngamma: 0.1\nstepvalue: 150000\nstepvalue: 300000\nmax_iter: 450000\n'
          "display: 20\naverage_loss: 20\nsnapshot: 10000\n")
ALEXNET = sgd(0.01, 0.0005, step(0.1, 100000), 450000, test_interval=1000)
VGG = sgd(0.01, 0.0005, step(0.1, 100000), 370000)

# Devlin et al. 2019, but for the prediction of the next sentence
BERT = ('type: "AdamW"\ntest_iter: 50\ntest_interval: 5000\nbatch_tokens: 131072\nbase_lr: 0.0001\nlr_policy: "poly"\n'
        "power: 1\nwarmup { iterations: 10000 }\nmomentum: 0.9\nmomentum2: 0.999\nweight_decay: 0.01\n"
        "decay_rule: MATRICES\nclip_gradients: 1\nmax_iter: 1000000\ndisplay: 20\nsnapshot: 5000\nsnapshot_keep: 2\n")


SNAPSHOTS = "display: 10\nsnapshot: 2000\nsnapshot_keep: 2\n"


def gpt2(rate):
    """CHEAP makes GELU's values again, which costs at most one percent of a step."""
    return adamw(rate, rate / 10, 0.95, 2000, 600000, 50, 2000, "batch_tokens: 524288\nrecompute: CHEAP\n") + SNAPSHOTS


SOLVERS = {
    "alexnet": ALEXNET,
    "alexnet_bn": ALEXNET,
    "bert_base": BERT,
    "bert_mini": BERT,
    "caffenet": ALEXNET,
    "cifar10_full": sgd(0.001, 0.004, multistep(0.1, 60000, 65000), 70000, 100, 1000, 200, 10000),
    "densenet121": RESNET,
    "fcn8s": ("test_iter: 736\ntest_interval: 4000\ntest_initialization: false\nbase_lr: 1e-14\nmomentum: 0.99\n"
              'weight_decay: 0.0005\nlr_policy: "fixed"\nmax_iter: 100000\ndisplay: 20\naverage_loss: 20\n'
              "snapshot: 4000\n"),
    "googlenet": ("test_iter: 1000\ntest_interval: 4000\ntest_initialization: false\nbase_lr: 0.01\n"
                  'momentum: 0.9\nweight_decay: 0.0002\nlr_policy: "step"\ngamma: 0.96\nstepsize: 320000\n'
                  "max_iter: 10000000\ndisplay: 40\naverage_loss: 40\nsnapshot: 40000\n"),
    "gpt2": gpt2(0.0006),
    "gpt2_medium": gpt2(0.0003),
    "gpt2_large": gpt2(0.00025),
    "gpt2_xl": gpt2(0.0002),
    "gpt_char": adamw(0.001, 0.0001, 0.99, 100, 2000, 40, 250) + "display: 10\nsnapshot: 500\nsnapshot_keep: 2\n",
    "inception_v3": sgd(0.045, 0.00004, 'lr_policy: "step"\ngamma: 0.94\nstepsize: 80000\n', 4000000),
    "llama_135m": adamw(0.001, 0.0001, 0.95, 2000, 600000, 50, 2000, "batch_tokens: 524288\n") + SNAPSHOTS,
    "lstm_large": zaremba(35, 55, 14, 1.15, 10),
    "lstm_medium": zaremba(35, 39, 6, 1.2, 5),
    "minilm": BERT,
    "mobilenet_v1": sgd(0.1, 0.00004, 'lr_policy: "poly"\npower: 1\n', 500000),
    "mobilenet_v2": sgd(0.1, 0.00004, 'lr_policy: "poly"\npower: 1\n', 750000),
    "resnet20": CIFAR,
    "resnet44": CIFAR,
    "resnet50": RESNET,
    "resnet101": RESNET,
    "resnet152": RESNET,
    "senet50": RESNET,
    "squeezenet": sgd(0.04, 0.0002, 'lr_policy: "poly"\npower: 1\n', 170000, more="iter_size: 16\n"),
    "ssd300": sgd(0.001, 0.0005, multistep(0.1, 80000, 100000), 120000, 619, 10000,
                  more='iter_size: 4\neval_type: "detection"\nap_version: "11point"\n'),
    "vgg16": VGG,
    "vgg16_cifar": sgd(0.05, 0.0005, multistep(0.1, 32000, 48000), 64000, 100, 500, 100, 8000),
    "vgg19": VGG,
}

# Besides: file: settings, for those who have not the time of the published ones.
SHORT = {
    "resnet20": {"solver_40_epochs.prototxt": sgd(0.1, 0.0005, 'lr_policy: "cosine"\n', 15600, 100, 2600, 100, 2000,
                                                  more='type: "Nesterov"\n')},
}
