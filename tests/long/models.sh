# Every model trains on one batch: see tests/models_fall.sh.
exec sh "$ROOT/tests/models_fall.sh" alexnet alexnet_bn caffenet cifar10_full densenet121 fcn8s \
    googlenet inception_v3 lenet lstm lstm_medium lstm_large mobilenet_v1 mobilenet_v2 quick resnet20 resnet44 resnet50 resnet101 resnet152 senet50 \
    squeezenet ssd300 vgg16 vgg16_cifar vgg19
