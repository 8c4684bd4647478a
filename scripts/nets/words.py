"""Language models on Penn Treebank."""
from .net import Net

WORDS, BATCH, TRAIN_WORDS = 10000, 20, 929589


def lstm(name, units, steps, init, drop):
    """Two LSTMs of `units`; dropout between, not along time."""
    filler = f'type: "uniform" min: -{init} max: {init}'
    net = Net(name, filler, lr2=False)
    for phase, part in (("TRAIN", "train"), ("TEST", "valid")):
        net.layer("data", "TextData", [], ["words", "cont", "next"], f"include {{ phase: {phase} }}",
                  f'text_data_param {{ source: "data/ptb/{part}.h5" batch_size: {BATCH} steps: {steps}'
                  f" synthetic_words: {WORDS} }}")
    net.input = [("words", (steps, 1)), ("cont", (steps, 1))]
    top = net.layer("embed", "Embed", ["words"], ["embed"],
                    f"embed_param {{ input_dim: {WORDS} num_output: {units} bias_term: false"
                    f" weight_filler {{ {filler} }} }}")
    for i in (1, 2):
        top = net.dropout(f"drop{i - 1}", top, drop)
        top = net.layer(f"lstm{i}", "LSTM", [top, "cont"], [f"lstm{i}"],
                        f"recurrent_param {{ num_output: {units} weight_filler {{ {filler} }} }}")
    top = net.dropout("drop2", top, drop)
    net.layer("score", "InnerProduct", [top], ["score"],
              f"inner_product_param {{ num_output: {WORDS} axis: 2 weight_filler {{ {filler} }} }}")
    net.layer("loss", "SoftmaxWithLoss", ["score", "next"], ["loss"], "softmax_param { axis: 2 }")
    net.scores = ("score", " softmax_param { axis: 2 }")
    return net


def lstm_medium():
    """Zaremba et al., "Recurrent neural network regularization", 2014: the medium model, 650 units."""
    return lstm("LSTM-650", 650, 35, 0.05, 0.5)


def lstm_large():
    """Zaremba et al., "Recurrent neural network regularization", 2014: the large model, 1500 units."""
    return lstm("LSTM-1500", 1500, 35, 0.04, 0.65)


def zaremba(steps, epochs, full, divisor, clip):
    """Their schedule, of losses that are means over `steps` words where theirs are sums."""
    epoch = (TRAIN_WORDS - 1) // BATCH // steps
    drops = "".join(f"stepvalue: {e * epoch}\n" for e in range(full, epochs))
    return (f"test_iter: {(73760 - 1) // BATCH // steps}\ntest_interval: {epoch}\nbase_lr: {steps}\n"
            f'lr_policy: "multistep"\ngamma: {1 / divisor:.6f}\n{drops}clip_gradients: {clip / steps:.6f}\n'
            f"max_iter: {epochs * epoch}\ndisplay: 100\naverage_loss: 100\nsnapshot: {epoch}\nsnapshot_keep: 2\n")
