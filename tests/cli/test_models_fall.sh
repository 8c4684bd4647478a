# The small models train on one batch: see tests/models_fall.sh; the others: tests/long/models.sh.
exec sh "$ROOT/tests/models_fall.sh" lenet quick cifar10_full resnet20 lstm gpt_char bert_mini
