#!/usr/bin/python3
"""Writes tests/golden/kernels.txt: what PyTorch computes, in double, for the layers that compute.

Inputs, weights and top gradients are made by value(), which the test repeats. A case is
    case TYPE
    text FIELDS                 prototxt, one line
    shape DIMENSIONS
    NAME COUNT VALUES           top, bottom_diff, weight_diff0, weight_diff1
Usage: make_golden_kernels.py > kernels.txt      (recorded with PyTorch 1.13)
"""
import torch
import torch.nn.functional as F


def value(n, salt):
    """n numbers in [-1, 1], exact in binary, different for each salt."""
    return torch.tensor([((i * 7919 + salt * 104729) % 257 - 128) / 128 for i in range(n)],
                        dtype=torch.float64)


def made(shape, salt):
    n = 1
    for d in shape:
        n *= d
    return value(n, salt).reshape(shape).requires_grad_()


def show(name, tensor):
    flat = tensor.detach().flatten().tolist()
    print(name, len(flat), " ".join("%.9g" % v for v in flat))


def case(kind, text, shape, weights, run):
    x = made(shape, 1)
    w = [made(s, 2 + i) for i, s in enumerate(weights)]
    y = run(x, *w)
    y.backward(value(y.numel(), 9).reshape(y.shape))
    print("case", kind)
    print("text", text)
    print("shape", *shape)
    show("top", y)
    show("bottom_diff", x.grad)
    for i, v in enumerate(w):
        show("weight_diff%d" % i, v.grad)


def convolution(text, shape, weight, bias=True, **how):
    weights = [weight] + ([[weight[0]]] if bias else [])
    case("Convolution", "convolution_param { num_output: %d %s }" % (weight[0], text), shape,
         weights, lambda x, w, b=None: F.conv2d(x, w, b, **how))


def main():
    convolution("kernel_size: 3", [2, 2, 5, 4], [3, 2, 3, 3])
    convolution("kernel_size: 3 pad: 1 stride: 2 group: 2", [1, 4, 7, 6], [4, 2, 3, 3],
                padding=1, stride=2, groups=2)
    convolution("kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 1 pad_w: 0 bias_term: false",
                [3, 1, 4, 7], [2, 1, 2, 3], bias=False, padding=(1, 0), stride=(1, 2))
    convolution("kernel_size: 3 dilation: 2 pad: 2", [1, 2, 6, 5], [2, 2, 3, 3], padding=2,
                dilation=2)
    convolution("kernel_size: 1", [2, 3, 2, 3], [4, 3, 1, 1])
    for size, shape in (((3, 2, 0), [2, 2, 6, 7]), ((3, 2, 1), [1, 2, 6, 7]), ((2, 2, 1), [1, 2, 5, 4])):
        fields = "kernel_size: %d stride: %d pad: %d" % size
        case("Pooling", "pooling_param { pool: MAX %s }" % fields, shape, [],
             lambda x: F.max_pool2d(x, *size, ceil_mode=True))
        case("Pooling", "pooling_param { pool: AVE %s }" % fields, shape, [],
             lambda x: F.avg_pool2d(x, *size, ceil_mode=True, count_include_pad=True))
    case("Pooling", "pooling_param { pool: AVE global_pooling: true }", [2, 3, 3, 4], [],
         lambda x: F.adaptive_avg_pool2d(x, 1))
    case("InnerProduct", "inner_product_param { num_output: 4 }", [3, 2, 2, 2], [[4, 8], [4]],
         lambda x, w, b: F.linear(x.flatten(1), w, b))
    case("InnerProduct", "inner_product_param { num_output: 3 axis: 2 transpose: true }", [2, 3, 5],
         [[5, 3], [3]], lambda x, w, b: x @ w + b)
    case("ReLU", "relu_param { negative_slope: 0.25 }", [2, 9], [],
         lambda x: F.leaky_relu(x, 0.25))
    case("ReLU", "", [2, 9], [], F.relu)
    case("LRN", "lrn_param { local_size: 5 alpha: 0.5 beta: 0.75 }", [2, 7, 2, 3], [],
         lambda x: F.local_response_norm(x, 5, 0.5, 0.75, 1.0))
    case("LRN", "lrn_param { local_size: 3 alpha: 2 beta: 0.6 k: 2 }", [1, 4, 3, 2], [],
         lambda x: F.local_response_norm(x, 3, 2.0, 0.6, 2.0))
    case("LRN", "lrn_param { local_size: 3 alpha: 2 beta: 0.75 norm_region: WITHIN_CHANNEL }",
         [2, 2, 4, 5], [],
         lambda x: x * (1 + 2.0 * F.avg_pool2d(x * x, 3, 1, 1)) ** -0.75)


main()
