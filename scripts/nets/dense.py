"""Nets that say something of every place of an image: FCN-8s and SSD, both on VGG-16."""
from .net import Net

BILINEAR = 'type: "bilinear"'


def vgg_base(net, top, stages=5, pad=1):
    """VGG-16's convolutions with their poolings but the last one's; returns the top of each stage before pooling."""
    ends = []
    for stage, (count, width) in enumerate(zip((2, 2, 3, 3, 3), (64, 128, 256, 512, 512)), 1):
        for i in range(1, count + 1):
            top = net.relu(f"relu{stage}_{i}", net.conv(f"conv{stage}_{i}", top, width, 3,
                                                        pad=pad if (stage, i) == (1, 1) else 1))
        ends.append(top)
        if stage < stages:
            top = net.pool(f"pool{stage}", top, 2, 2)
    return ends


def fcn8s():
    """Long et al., "Fully convolutional networks for semantic segmentation", CVPR 2015: FCN-8s."""
    net = Net("FCN-8s", 'type: "msra"', bias=0)
    for phase, part in (("TRAIN", "train"), ("TEST", "val")):
        for top, channels, transform in (("data", 3, "mean_value: 104 mean_value: 117 mean_value: 123"), ("label", 1, "")):
            net.layer(top, "Data", [], [top], f"include {{ phase: {phase} }}",
                      *([f"transform_param {{ {transform} }}"] if transform else []),
                      f'data_param {{ source: "data/voc/{part}_{top}_lmdb" backend: LMDB batch_size: 1'
                      f" synthetic_shape {{ dim: {channels} dim: 500 dim: 500 }} }}")
    net.input = [("data", (1, 3, 500, 500))]

    def score(name, bottom):
        return net.conv(name, bottom, 21, 1, weight='type: "constant" value: 0')

    def upscore(name, bottom, kernel, stride):
        """Bilinear, each class by itself, and stays so."""
        return net.layer(name, "Deconvolution", [bottom], [name], "param { lr_mult: 0 }",
                         f"convolution_param {{ num_output: 21 group: 21 bias_term: false kernel_size: {kernel}"
                         f" stride: {stride} weight_filler {{ {BILINEAR} }} }}")

    def crop(name, bottom, like, offset):
        return net.layer(name, "Crop", [bottom, like], [name], f"crop_param {{ axis: 2 offset: {offset} }}")

    ends = vgg_base(net, "data", pad=100)
    top = net.pool("pool5", ends[-1], 2, 2)
    for name, kernel in (("fc6", 7), ("fc7", 1)):
        top = net.relu(f"relu{name[-1]}", net.conv(name, top, 4096, kernel))
        top = net.dropout(f"drop{name[-1]}", top, 0.5)
    top = upscore("upscore2", score("score_fr", top), 4, 2)
    side = crop("score_pool4c", score("score_pool4", "pool4"), top, 5)
    top = upscore("upscore_pool4", net.eltwise("fuse_pool4", top, side), 4, 2)
    side = crop("score_pool3c", score("score_pool3", "pool3"), top, 9)
    top = upscore("upscore8", net.eltwise("fuse_pool3", top, side), 16, 8)
    top = crop("score", top, "data", 31)
    net.layer("loss", "SoftmaxWithLoss", [top, "label"], ["loss"], "loss_param { ignore_label: 255 normalize: false }")
    net.layer("accuracy", "Accuracy", [top, "label"], ["accuracy"], "include { phase: TEST }",
              "accuracy_param { ignore_label: 255 }")
    net.scores = (top, "")
    return net


# of each feature map: layer, smallest and largest prior, aspect ratios beside 1, pixels between priors
SSD_MAPS = (("conv4_3_norm", 30, 60, (2,), 8), ("fc7", 60, 111, (2, 3), 16), ("conv6_2", 111, 162, (2, 3), 32),
            ("conv7_2", 162, 213, (2, 3), 64), ("conv8_2", 213, 264, (2,), 100), ("conv9_2", 264, 315, (2,), 300))
SSD_CLASSES = 21


def ssd_head(net, name, smallest, largest, ratios, step):
    """Locations, scores and priors of one feature map, in rows."""
    priors = 2 + 2 * len(ratios)
    rows = []
    for kind, per_prior in (("loc", 4), ("conf", SSD_CLASSES)):
        top = net.conv(f"{name}_mbox_{kind}", name, priors * per_prior, 3, pad=1, weight='type: "xavier"')
        top = net.layer(f"{top}_perm", "Permute", [top], [f"{top}_perm"],
                        "permute_param { order: 0 order: 2 order: 3 order: 1 }")
        flat = f"{name}_mbox_{kind}_flat"
        rows.append(net.layer(flat, "Flatten", [top], [flat], "flatten_param { axis: 1 }"))
    box = f"{name}_mbox_priorbox"
    aspect = " ".join(f"aspect_ratio: {r}" for r in ratios)
    rows.append(net.layer(box, "PriorBox", [name, "data"], [box],
                          f"prior_box_param {{ min_size: {smallest} max_size: {largest} {aspect} flip: true clip: false"
                          f" variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 step: {step} offset: 0.5 }}"))
    return rows


def ssd_data(net):
    """Images with boxes, with the authors' samplers and distortions in TRAIN."""
    mean = "mean_value: 104 mean_value: 117 mean_value: 123"
    resize = "resize_param { prob: 1 resize_mode: WARP height: 300 width: 300"
    modes = " ".join(f"interp_mode: {m}" for m in ("LINEAR", "AREA", "NEAREST", "CUBIC", "LANCZOS4"))
    constraints = [f"min_jaccard_overlap: 0.{k}" for k in (1, 3, 5, 7, 9)] + ["max_jaccard_overlap: 1"]
    samplers = [
        "  batch_sampler { sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }"
        f" sample_constraint {{ {c} }} max_trials: 50 max_sample: 1 }}" for c in constraints
    ]
    net.layer("data", "AnnotatedData", [], ["data", "boxes"], "include { phase: TRAIN }",
              "transform_param {", f"  mirror: true {mean}", "  emit_constraint { emit_type: CENTER }",
              "  distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5"
              " contrast_upper: 1.5 hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 saturation_lower: 0.5 saturation_upper: 1.5 }",
              "  expand_param { prob: 0.5 max_expand_ratio: 4 }", f"  {resize} {modes} }}", "}",
              'data_param { source: "data/voc/train_lmdb" backend: LMDB batch_size: 8 threads: 2 }',
              "annotated_data_param {", "  batch_sampler { max_sample: 1 max_trials: 1 }", *samplers, "}")
    net.layer("data", "AnnotatedData", [], ["data", "boxes"], "include { phase: TEST }",
              f"transform_param {{ {mean} {resize} interp_mode: LINEAR }} }}",
              'data_param { source: "data/voc/test_lmdb" backend: LMDB batch_size: 8 }')
    net.input = [("data", (1, 3, 300, 300))]


def ssd300():
    """Liu et al., "SSD: Single shot multibox detector", ECCV 2016: SSD300 on PASCAL VOC's 20 classes."""
    net = Net("SSD300", 'type: "xavier"', bias=0)
    ssd_data(net)
    ends = vgg_base(net, "data")
    net.layer("conv4_3_norm", "Normalize", ["conv4_3"], ["conv4_3_norm"],
              'norm_param { across_spatial: false scale_filler { type: "constant" value: 20 } channel_shared: false }')
    top = net.pool("pool5", ends[-1], 3, 1, pad=1)
    for name, out, kernel, stride, pad, dilation in (
            ("fc6", 1024, 3, 1, 6, 6), ("fc7", 1024, 1, 1, 0, 1), ("conv6_1", 256, 1, 1, 0, 1), ("conv6_2", 512, 3, 2, 1, 1),
            ("conv7_1", 128, 1, 1, 0, 1), ("conv7_2", 256, 3, 2, 1, 1), ("conv8_1", 128, 1, 1, 0, 1),
            ("conv8_2", 256, 3, 1, 0, 1), ("conv9_1", 128, 1, 1, 0, 1), ("conv9_2", 256, 3, 1, 0, 1)):
        top = net.relu(f"{name}_relu", net.conv(name, top, out, kernel, stride, pad, dilation=dilation))
    heads = [ssd_head(net, *feature) for feature in SSD_MAPS]
    for name, axis, parts in (("mbox_loc", 1, 0), ("mbox_conf", 1, 1), ("mbox_priorbox", 2, 2)):
        net.layer(name, "Concat", [head[parts] for head in heads], [name], f"concat_param {{ axis: {axis} }}")
    net.layer("mbox_loss", "MultiBoxLoss", ["mbox_loc", "mbox_conf", "mbox_priorbox", "boxes"], ["mbox_loss"],
              "propagate_down: true propagate_down: true propagate_down: false propagate_down: false",
              "loss_param { normalization: VALID }",
              f"multibox_loss_param {{ num_classes: {SSD_CLASSES} loc_loss_type: SMOOTH_L1 conf_loss_type: SOFTMAX"
              " match_type: PER_PREDICTION overlap_threshold: 0.5 use_prior_for_matching: true background_label_id: 0"
              " use_difficult_gt: true mining_type: MAX_NEGATIVE neg_pos_ratio: 3 neg_overlap: 0.5"
              " code_type: CENTER_SIZE ignore_cross_boundary_bbox: false }")
    test = "include { phase: TEST }"
    net.layer("mbox_conf_reshape", "Reshape", ["mbox_conf"], ["mbox_conf_reshape"], test,
              f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {SSD_CLASSES} }} }}")
    net.layer("mbox_conf_softmax", "Softmax", ["mbox_conf_reshape"], ["mbox_conf_softmax"], test, "softmax_param { axis: 2 }")
    net.layer("mbox_conf_flatten", "Flatten", ["mbox_conf_softmax"], ["mbox_conf_flatten"], test, "flatten_param { axis: 1 }")
    net.layer("detection_out", "DetectionOutput", ["mbox_loc", "mbox_conf_flatten", "mbox_priorbox"], ["detection_out"], test,
              f"detection_output_param {{ num_classes: {SSD_CLASSES} share_location: true background_label_id: 0"
              " nms_param { nms_threshold: 0.45 top_k: 400 } keep_top_k: 200 code_type: CENTER_SIZE"
              " confidence_threshold: 0.01 }")
    net.layer("detection_eval", "DetectionEvaluate", ["detection_out", "boxes"], ["detection_eval"], test,
              f"detection_evaluate_param {{ num_classes: {SSD_CLASSES} background_label_id: 0 overlap_threshold: 0.5"
              " evaluate_difficult_gt: false }")
    return net
