#!/usr/bin/env python3
"""Makes those files of tests/fuzz/corpus that are images, blobs, texts, or what stands beside others. Needs Pillow.

Usage: tests/fuzz/make_corpus.py [FOLDER]

Targets that read several kinds tell them by the first byte (tests/fuzz/fuzz_NAME.c).
"""
import gzip
import io
import json
import os
import struct
import sys

from PIL import Image

from protobuf_wire import field, varint

FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def write(name, data):
    with open(os.path.join(FOLDER, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


# ---- images: 7 x 5 pixels in what encoders can make of them
def images():
    rgb = Image.new("RGB", (7, 5))
    rgb.putdata([(x * 30, y * 50, (x * y * 13) % 256) for y in range(5) for x in range(7)])
    turned = Image.Exif()
    turned[0x0112] = 6
    gray, alpha = rgb.convert("L"), rgb.convert("RGBA")
    alpha.putalpha(gray)
    shades = Image.new("I;16", (7, 5))
    forms = {
        "rgb.jpg": (rgb, {}), "gray.jpg": (gray, {}), "cmyk.jpg": (rgb.convert("CMYK"), {}),
        "progressive.jpg": (rgb, dict(progressive=True)), "turned.jpg": (rgb, dict(exif=turned)),
        "rgb.png": (rgb, {}), "gray.png": (gray, {}), "palette.png": (rgb.quantize(5), {}), "alpha.png": (alpha, {}),
        "bits.png": (rgb.convert("1"), {}), "shades.png": (shades, {}), "turned.png": (rgb, dict(exif=turned)),
        "lossless.webp": (rgb, dict(lossless=True)), "lossy.webp": (rgb, {}), "alpha.webp": (alpha, dict(lossless=True)),
        "turned.webp": (rgb, dict(exif=turned)),
        "rgb.tif": (rgb, {}), "lzw.tif": (rgb, dict(compression="tiff_lzw")), "deflate.tif": (rgb, dict(compression="tiff_adobe_deflate")),
        "gray.tif": (gray, {}), "bits.tif": (rgb.convert("1"), dict(compression="group4")), "palette.tif": (rgb.quantize(5), {}),
        "turned.tif": (rgb, dict(exif=turned)), "jpeg.tif": (rgb, dict(compression="jpeg")), "pack.tif": (rgb, dict(compression="packbits")),
    }
    for name, (image, how) in forms.items():
        f = io.BytesIO()
        image.save(f, {"jpg": "JPEG", "tif": "TIFF"}.get(name[-3:], name[name.index(".") + 1:].upper()), **how)
        write("image_" + name, f.getvalue())
    f = io.BytesIO()
    rgb.save(f, "PNG")
    write("image_large_chunk.png", f.getvalue()[:33] + b"\x57EBPeXIfMM" + f.getvalue()[33:])  # of 1.4 GB, as it says
    f = io.BytesIO()
    rgb.save(f, "WEBP", save_all=True, append_images=[rgb.rotate(180)])
    write("image_animated.webp", f.getvalue())


# ---- Caffe's blobs, by hand
def blob(dims, values, new=True, double=False):
    shape = field(7, field(1, b"".join(map(varint, dims)))) if new else b"".join(field(i + 1, d) for i, d in enumerate(dims))
    return shape + field(8 if double else 5, struct.pack(f"<{len(values)}{'d' if double else 'f'}", *values))


def blobs():
    six, two = [0.5, -1, 2, 3, 4, 5], [0.25, 1]
    write("mean.binaryproto", blob([1, 3, 1, 2], six, new=False))
    write("mean_double.binaryproto", blob([1, 3, 1, 2], six, new=False, double=True))
    write("mean_shape.binaryproto", blob([3, 1, 2], six))
    for name, more in (("plain", b""), ("weights", field(2, "/nowhere/s_iter_7.caffemodel")), ("event", field(6, 5))):
        write(f"state_{name}.solverstate", field(1, 7) + field(3, blob([2, 3], six)) + field(3, blob([2], two)) + field(4, 1) + more)
    v1 = field(4, "ip") + field(5, 14) + field(6, blob([1, 1, 2, 3], six, new=False)) + field(6, blob([1, 1, 1, 2], two, new=False))
    write("model_v1.caffemodel", field(1, "old") + field(2, v1))
    v0 = field(1, "ip") + field(2, "innerproduct") + field(50, blob([1, 1, 2, 3], six, new=False)) + field(50, blob([1, 1, 1, 2], two, new=False))
    write("model_v0.caffemodel", field(1, "older") + field(2, field(1, v0)))


# ---- MNIST, CIFAR-10
def records():
    images = struct.pack(">4i", 0x803, 2, 2, 3) + bytes(range(12))
    labels = struct.pack(">2i", 0x801, 2) + b"\x05\x07"
    for i, data in enumerate((images, labels, gzip.compress(images, mtime=0), gzip.compress(labels, mtime=0), bytes(3073),
                              gzip.compress(bytes(6146), mtime=0))):
        write(f"records_{i}", bytes([i]) + data)


# ---- texts, and what stands in lines
def texts():
    kinds = ["the cat saw\nthe dog\n", "the cat saw the dog and the other dog saw the cat", "the\ncat\n<eos>\n<unk>\n", "cat\ndog\nhorse\n",
             struct.pack("<8H", 1, 2, 3, 70, 5, 6, 7, 8), "# clients\nkey-one\nkey-two\n", "a.jpg a.xml\nb c.jpg b.xml\n",
             'item { name: "none" label: 0 display_name: "background" }\nitem { name: "cat" label: 1 display_name: "cat" }\n',
             "cortado shards 1\nsamples 10\nstripes 4\nfiles 2\n"]
    for i, text in enumerate(kinds):
        write(f"words_{i}", bytes([i]) + (text if isinstance(text, bytes) else text.encode()))
    head = struct.pack("<3i", 20240520, 1, 4) + bytes(1012)
    write("words_llmc", bytes([4]) + head + struct.pack("<4H", 1, 2, 3, 4))
    write("words_llama", bytes([4]) + struct.pack("<3i", 20240801, 7, 2) + bytes(1012) + struct.pack("<2i", 1, 100000))


# ---- what runs leave
def runs():
    metrics = '{"event":"run","net":"n"}\n{"event":"train","iter":1,"loss":2.5,"lr":0.1}\n{"event":"test","iter":2,"accuracy":0.5}\n{"event":"done"}\n'
    log = ("I0101 solver.cpp] Iteration 20 (5 iter/s), loss = 1.25\nI Train net output #0: loss = 1.25 (* 1 = 1.25 loss)\n"
           "I Iteration 20, lr = 0.01\nI Iteration 40, Testing net (#0)\nI Test net output #1: accuracy = 0.5\n")
    span = dict(ph="X", pid=0, tid=0)
    trace = dict(otherData=dict(iterations="10-11"), traceEvents=[
        dict(span, ts=0, dur=90, args=dict(kind="iteration")), dict(span, ts=1, dur=40, args=dict(kind="forward")),
        dict(span, ts=50, dur=20, args=dict(kind="wait for gradients")), dict(span, tid=3, ts=5, dur=60, args=dict(kind="bucket"))])
    write("run_metrics", bytes([0]) + metrics.encode())
    write("run_log_far", bytes([0]) + b"Iteration 1, Testing net (#1e300)\n Test net output #0: a = 1\n")
    write("run_log", bytes([0]) + log.encode())
    for i, what in enumerate((json.loads("{}"), dict(confusion=[[1, 2], [3, 4]], classes=["a", "b"]), dict(layers=[dict(name="c", ms=1)]), trace)):
        write(f"run_{i}", bytes([2 * i + 1]) + (metrics if i == 0 else json.dumps(what)).encode())
    write("run_study", bytes([129]) + json.dumps(dict(define=dict(kind="run", nodes=2), status="ok", result={})).encode())
    write("run_notes_bad", bytes([128]) + b'{"command":"x"}')
    write("run_notes", bytes([128]) + b'[{"command":"x","when":"2026"}]')


# ---- what stands beside others, what the environment says
def beside():
    config = dict(model_type="llama", num_attention_heads=4, num_key_value_heads=2, hidden_size=8, rms_norm_eps=1e-5, rope_theta=10000.0)
    write("beside_config", bytes([0]) + json.dumps(config).encode())
    chat = dict(chat_template=[dict(name="default", template="{% for m in messages %}<|im_start|>{{m.role}}{% endfor %}")])
    write("beside_chat", bytes([1]) + json.dumps(chat).encode())
    write("beside_chat_plain", bytes([1]) + json.dumps(dict(chat_template="<|start_header_id|>")).encode())
    write("beside_index", bytes([2]) + json.dumps(dict(metadata={}, weight_map={"model.embed_tokens.weight": "model-1.safetensors"})).encode())
    write("beside_best", bytes([3]) + b"accuracy HIGHER\n20 0.5\n10 0.25\n")
    sweep = ('solver: "s" metric: "accuracy" vary { field: "base_lr" from: 1e-4 to: 0.1 log: true steps: 4 }\n'
             'vary { field: "momentum" value: "0" value: "0.9" } set: "max_iter=20" at_once: 2 search: RANDOM runs: 3\n')
    write("beside_sweep", bytes([4]) + sweep.encode())
    write("environment", "CORTADO_ITERATIONS=5\nCORTADO_SET=base_lr=1;max_iter=2\nCORTADO_SIMD=avx2\nCORTADO_ITRATIONS=1\nCORTADO_OVERWRITE=true\n"
          "SLURM_MEM_PER_CPU=100\nSLURM_CPUS_ON_NODE=4\nSLURM_STEP_NUM_TASKS=2\nSLURM_JOB_ID=7\nSLURM_RESTART_COUNT=1\n"
          "SLURM_TOPOLOGY_ADDR=s.n1\nSLURM_TOPOLOGY_ADDR_PATTERN=switch.node\nSLURM_JOB_NODELIST=n[1-4]\nSLURMD_NODENAME=n1\n")


# ---- the body of a form, as `curl -F` makes it
def forms():
    part = '--b\r\nContent-Disposition: form-data; name="a"; filename="a b.png"\r\nContent-Type: image/png\r\n\r\nbytes\r\n'
    write("request_form", "\x00" + 2 * part + '--b\r\nContent-Disposition: form-data; name="n"\r\n\r\n5\r\n--b--\r\n')


# ---- whole requests: bits of the first byte are those of fuzz_http.c
def http():
    form = ('--b\r\nContent-Disposition: form-data; name="a"; filename="a b.png"\r\n\r\n123456789012\r\n'
            '--b\r\nContent-Disposition: form-data; name="a"; filename="n\xff.png"\r\n\r\nnan\r\n--b--\r\n')
    body = '{"inputs":[{"name":"picture","shape":[1,3,2,2],"datatype":"FP32","data":[1,2,3,4,5,6,7,8,9,10,11,12]}]}'
    plain = [(0, m) for m in ("GET /", "GET /metrics", "GET /v1/models", "GET /v1/models/fake", "GET /v1/models/other", "GET /v2",
                              "GET /v2/health/live", "GET /v2/health/ready", "GET /v2/models/fake", "GET /v2/models/fake/versions/1/ready",
                              "POST /metrics", "GET /nothing", "GET /v2/nothing")]
    plain += [(1, "GET /v2/health/ready"), (1, "POST /v1/embeddings"), (4, "POST /v1/embeddings"), (16, "GET /metrics"), (64, "POST /classify"),
              (16, "GET /v1/models\nkBearer two"), (16, "GET /v1/models\nkBearer no"), (0, "POST /classify?top_k=0\ntimage/png"),
              (0, "POST /classify?top=1\ntimage/png"), (0, "POST /classify\ntimage/png"), (0, "POST /classify\ntimage/gif"), (0, "POST /classify"),
              (0, "POST /v1/completions"), (0, "POST /classify\ntmultipart/form-data; boundary=b")]
    for i, (first, head) in enumerate(plain):
        write(f"http_{i:02}", bytes([first]) + head.encode() + b"\n\n")
    for i, first in enumerate((0, 2, 8, 32, 34)):
        write(f"http_form_{i}", bytes([first]) + b'POST /classify?top_k=2\ntmultipart/form-data; boundary="b"\n\n' + form.encode("latin-1"))
    for i, picture in enumerate(("123", "damaged", "kind", "memory")):
        write(f"http_picture_{i}", bytes([32]) + b"POST /classify\ntimage/jpeg; q=1\n\n" + picture.encode())
    many = form[:form.index("--b", 1)] * 4 + "--b--\r\n"
    write("http_form_many", b"\0POST /classify\ntmultipart/form-data; boundary=b\n\n" + many.encode("latin-1"))
    write("http_form_field", b'\0POST /classify\ntmultipart/form-data; boundary=b\n\n--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n5\r\n--b--\r\n')
    write("http_form_none", b"\0POST /classify\ntmultipart/form-data; boundary=b\n\n--b--\r\n")
    write("http_form_cut", b"\0POST /classify\ntmultipart/form-data; boundary=b\n\n--bb")
    write("http_infer", b"\0POST /v2/models/fake/infer\n\n" + body.encode())
    write("http_infer_fails", b"\x08POST /v2/models/fake/infer\n\n" + body.encode())
    write("http_infer_late", b"\x04POST /v2/models/fake/infer\n\n" + body.encode())
    write("http_embed", b'\0POST /v1/embeddings\n\n{"input":["ab","c"],"encoding_format":"base64"}')
    write("http_list", b"\0POST /v1/embeddings\n\n[1]")
    write("http_unknown", b'\0POST /v1/embeddings\n\n{"inputs":1}')


# ---- files of a folder of boxes; the first byte is which, and how it is read (fuzz_boxes.c)
def boxes():
    xml = ("<annotation><filename>{}</filename><size><width>{}</width><height>20</height></size><object><name>{}</name><difficult>1</difficult>"
           "<bndbox><xmin>{}</xmin><ymin>2</ymin><xmax>99</xmax><ymax>8</ymax></bndbox></object></annotation>")
    for i, values in enumerate((("b.jpg", 30, "cat", 3), ("b.jpg", 31, "cat", 3), ("b.jpg", 30, "cow", 3), ("b.jpg", 30, "background", 3),
                                ("b.jpg", 30, "cat", 70), ("no.jpg", 30, "cat", 3))):
        for how in (0, 2, 4):
            write(f"boxes_{i}_{how}", bytes([1 + 7 * how]) + xml.format(*values).encode())
    write("boxes_no_name", bytes([1 + 7 * 2]) + b"<annotation></annotation>")
    texts = ((0, "no picture"), (2, ""), (2, "a \r\n\nb\nno\n"), (2, "n" * 1100), (3, "b\n"), (4, "background\ncat\n"), (4, "cat\n"),
             (5, 'item { name: "none" label: 0 } item { name: "cat" label: 1 display_name: "c" }'), (5, 'item { name: "cat" label: 0 }'),
             (5, 'item { label: 1 }'), (5, 'item { name: "a" label: 1 } item { name: "b" label: 1 }'), (5, 'item { name: "cat" label: 1 }'),
             (6, "JPEGImages/a.jpg Annotations/a.xml\n\n"), (6, "JPEGImages/a.jpg"), (6, "a\0b c"), (6, " \n"), (6, "a.jpg no.xml\n"))
    for i, (kind, text) in enumerate(texts):
        write(f"boxes_text_{i:02}", bytes([kind]) + text.encode())
    write("voc_below_0.xml", "<annotation><size><width>-1</width><height>2</height></size></annotation>")
    write("boxes_mapped", bytes([5 + 7 * 5]) + b'item { name: "none" label: 0 } item { name: "cat" label: 1 }')
    write("boxes_hdf5", bytes([6 + 7 * 8]) + b"JPEGImages/a.jpg Annotations/a.xml\n")


# ---- what a job says of a machine that a file describes
def jobs():
    flat = 'name: "m" source: "s" sum_gbs: 10 level { name: "node" latency_us: 1 bandwidth_gbs: 8 }\n'
    room = flat.replace("bandwidth_gbs: 8", "bandwidth_gbs: 8 size: 2")
    top = 'level { name: "switch" size: 2 latency_us: 2 bandwidth_gbs: 10 }\nlevel { name: "machine" size: 2 latency_us: 3 bandwidth_gbs: 10 }\n'
    inside = ('name: "m" source: "s" sum_gbs: 10 level { name: "numa" latency_us: 1 bandwidth_gbs: 8 size: 2 }\n'
              'level { name: "socket" latency_us: 1 bandwidth_gbs: 8 size: 2 }\nlevel { name: "node" latency_us: 1 bandwidth_gbs: 8 size: 2 }\n') + top
    conf = "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3\nSwitchName=top Switches=s[1-2]\n"
    ranks = "r.s1.n1 switch.switch.node {}\nr.s1.n1 switch.switch.node {}\nr.s1.n2 switch.switch.node {}\nr.s2.n3 switch.switch.node {}\n"
    bound, free, same, late = ranks.format("00", "11", "00", "00"), ranks.format("", "", "", ""), ranks.format("00", "10", "00", "00"), ranks.format("02", "13", "02", "02")
    cases = [("./m", bound, flat + top), ("./m", free, room + top), ("./m", bound, inside), ("./m", free, inside), ("auto@./m", bound, inside),
             ("auto@./m", free, flat + top), ("slurm@./m", same, flat + top), ("slurm", late, None), ("slurm:./c", free, conf), ("slurm:./c", free + "x.n9\n", conf),
             ("2x2@./m", free, flat + top), ("2x2@./m", bound, inside), ("place:./m,2,packed", free, flat + top), ("auto@./m", free, flat)]
    for i, (topology, names, file) in enumerate(cases):
        write(f"job_file_{i:02}", f"{topology}\nauto\n\n{names}" + (f"--\n{file}" if file else ""))
    write("job_doubt", "auto\nauto\n\nr.s1.n1 switch.switch.node\n.n2 switch.node\n")
    write("job_list_lacks", "auto\nauto\nn1\nr.s1.n1 switch.switch.node\nr.s2.n2 switch.switch.node\n")


# ---- what requests may say, and may not
def requests():
    whole = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}, {"name": "ids", "shape": [1, 1], "datatype": "INT32", "data": [1]}]}
    x, i = whole["inputs"]
    several = [dict(whole, inputs=1), dict(whole, inputs=[dict(x, name="y"), i]), dict(whole, inputs=[x, dict(i, name=1)]), dict(whole, inputs=[x]),
               dict(whole, inputs=[x, x]), dict(whole, id=1), dict(whole, outputs=1), dict(whole, outputs=[{"name": "no"}]), dict(whole, outputs=[1]),
               dict(whole, outputs=[{"name": "sum"}, {"name": "sum"}]), dict(whole, parameters={"binary_data_output": 1}), dict(whole, more=1),
               dict(whole, outputs=[{"name": "sum", "parameters": {"binary_data": 1}}]), dict(whole, outputs=[{"name": "sum", "parameters": 1}])]
    several += [dict(whole, inputs=[dict(x, **c), i]) for c in (dict(shape=1), dict(shape=[1]), dict(shape=[0, 3]), dict(shape=[1, 4]), dict(shape=[99, 3]),
                dict(data=[1, 2]), dict(data=["a"] * 3), dict(data=[1, 2, 1e60]), dict(datatype="BYTES"), dict(datatype=1), dict(data=None, more=1),
                dict(parameters={"binary_data_size": 12}), dict(parameters={"binary": 1}))]
    several += [dict(whole, inputs=[x, dict(i, **c)]) for c in (dict(data=[999]), dict(data=[1.5]), dict(datatype="FP32"))]
    for k, body in enumerate(several):
        write(f"request_infer_{k:02}", b"\0" + json.dumps(body, separators=(",", ":")).encode())
    binary = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}, i]}
    for k, size in enumerate((12, 16)):
        write(f"request_bytes_{k}", b"\0" + json.dumps(dict(binary, inputs=[dict(binary["inputs"][0], parameters={"binary_data_size": size}), i])).encode())
    for k, more in enumerate((dict(model="no"), dict(model=1), dict(user=1), dict(input=[]), dict(input=""), dict(input=["a"] * 9), dict(input=["a" * 999]),
                              dict(input=[1, 999]), dict(input=["a", []]), dict(input=[1.5]), dict(input=["!"]), dict(input=["~"]), dict(input=7), dict(more=1),
                              dict(encoding_format="x"), dict(encoding_format=1), dict(dimensions=3), dict(input=[1] * 70), dict(input=None), dict(input=[{}]))):
        write(f"request_embed_{k:02}", b"\x01" + json.dumps(dict(dict(model="fake", input=["ab"]), **more), separators=(",", ":")).encode())
    text = dict(model="fake", prompt="Once", max_tokens=3)
    for k, more in enumerate((dict(suffix="a"), dict(echo=True), dict(echo=1), dict(n=2), dict(presence_penalty=1), dict(stop=""), dict(stop=["a"] * 9),
                              dict(stream_options={}), dict(stream=True, stream_options={"a": 1}), dict(temperature=3), dict(seed="a"), dict(max_tokens=99),
                              dict(max_tokens=-1), dict(prompt="a" * 900), dict(logprobs=99), dict(top_p=0), dict(prompt=[]), dict(messages=1), dict(stream=1),
                              dict(logit_bias={"1": 1}), dict(stream=True, stream_options=1))):
        write(f"request_text_{k:02}", b"\x03" + json.dumps(dict(text, **more), separators=(",", ":")).encode())
    user = dict(role="user", content="a")
    for k, more in enumerate((dict(top_logprobs=2), dict(response_format={"type": "json"}), dict(messages=[]), dict(messages=[dict(user, role="tool")]),
                              dict(messages=[dict(user, content=1)]), dict(messages=[dict(user, content=[{"type": "image"}])]), dict(messages=1), dict(tools=[1]),
                              dict(messages=[1]), dict(messages=[dict(user, content="b" * 900)]), dict(messages=[user] * 40), dict(messages=[dict(user, more=1)]))):
        write(f"request_chat_{k:02}", b"\x07" + json.dumps(dict(dict(messages=[user]), **more), separators=(",", ":")).encode())


# ---- machines with all that a file may say
def machines():
    time = "time { bytes: 8 us: 1 } time { bytes: 1024 us: 2 shift_us: 3 one_way_us: 1.5 }"
    rest = ('shared { latency_us: 1 cached_gbs: 20 cached_mb: 8 gbs: 10 residual: 0.1 time { bytes: 64 us: 1 } }\n'
            'coding { memory_gbs: 20 update_ns: 1 select_ns: 1 pack_ns: 1 add_ns: 1 merge_ns: 1 sign_ns: 1 one_core: 2 }\n'
            'in_network { bandwidth_gbs: 10 latency_us: 2 max_bytes: 4096 }\n')
    node = f'name: "m" source: "s" sum_gbs: 10 level {{ name: "node" size: 2 latency_us: 1 bandwidth_gbs: 8 {time} }}\n'
    torus = 'level { name: "machine" latency_us: 2 bandwidth_gbs: 10 torus: 4 torus: 2 hop_us: 0.5 }\n'
    flat = 'level { name: "switch" size: 2 latency_us: 2 bandwidth_gbs: 9 }\nlevel { name: "machine" size: 3 latency_us: 2 bandwidth_gbs: 10 oversubscription: 2 }\n'
    pairs = flat.replace("oversubscription: 2", "pairwise: true uplink_gbs: 20")
    one = 'node_class { name: "all" memory_gib: 8 gpus: 2 gpu_memory_gib: 16 gpu_gbs: 20 host_gbs: 30 file_read_gbs: 1 file_write_gbs: 1 gpu_tflops: 10 }\n'
    names = 'level { name: "switch" latency_us: 2 bandwidth_gbs: 9 }\nlevel { name: "machine" latency_us: 2 bandwidth_gbs: 10 }\nswitch { name: "s" nodes: "n[1-3]" }\nswitch { name: "t" nodes: "n4" }\n'
    two = 'node_class { name: "a" nodes: "n[1-2]" speed: 2 }\nnode_class { name: "b" nodes: "n[3-4]" inside_gbs: 5 inject_gbs: 6 memory_gib: 4 }\n'
    texts = [node + torus + rest, node + flat + rest, node + pairs, node + torus + one, node + names + two, node + names, node + flat + two.replace("n[1-2]", "0-2").replace("n[3-4]", "3-5"),
             node + names + two.replace("n[3-4]", "n4"), node + names + two.replace("n[3-4]", "n[2-4]"), node + names + two.replace("n[3-4]", "m"),
             node + flat + two.replace("n[1-2]", "0-2").replace("n[3-4]", "2-5"), node + flat + two.replace("n[1-2]", "2-0"), node + flat + two.replace("n[1-2]", "a"),
             node + flat + two.replace("n[1-2]", "0-9"), node + names.replace("n4", "n3"), node + names.replace('"t"', '"s"'),
             node.replace('"node"', '"noda"') + flat, node + flat.replace('"switch"', '"machine"'), node + torus.replace("torus: 2", "torus: 0"), node + torus + one + one,
             node + names.replace('nodes: "n4"', ""), node + torus.replace("hop_us", "size: 9 hop_us"), node.replace("us: 2", "us: 0") + torus]
    for k, text in enumerate(texts):
        write(f"machine_{k:02}", text)
    for k, text in enumerate(("torus:4x4", "torus:0", "torus:4xa", "2x4x8", "2node", "torus:99999x99999")):
        write(f"machine_spec_{k}", text)


# ---- parallel files, engines' plans and sweeps that are refused
def refused():
    whole = 'ranks: 2 global_batch: 4 micro_batches: 2 stage { first: "d" last: "c" rank: 0 } stage { first: "r" last: "e" rank: 1 }'
    for k, (old, new) in enumerate((("ranks: 2", "ranks: 0"), ("ranks: 2", "ranks: 3"), ("batch: 4", "batch: 0"), ("batch: 4", "batch: 5"), ("es: 2", "es: 0"), ("rank: 1", "rank: 0"),
                                    ("rank: 1", "rank: 1 rank: 1"), ("rank: 1", "rank: 7"), ("rank: 1", "rank: 1 share: 1 share: 1"), ("rank: 1", "rank: 1 share: 0"),
                                    ("rank: 1", "rank: 1 share: 7"), ('last: "c"', ""), ("rank: 1", "rank: 1 tensor: 0"), ("rank: 1", "rank: 1 tensor: 2"),
                                    ("rank: 1", "rank: 1 layer { }"), ("rank: 1", "rank: 1 again { }"), ("rank: 1", ""), ("es: 2", "es: 4"), ("rank: 0", "rank: 0 rank: 0"), ("ranks", "rank"))):
        write(f"parallel_{k:02}", whole.replace(old, new, 1))
    write("parallel_many", 'ranks: 3 global_batch: 1 stage { first: "d" last: "e" rank: 0 rank: 1 rank: 2 }')
    rows = 'cortado plan 1\nmachine "{}" avx2 threads 2 version "{}"\nconv a | {}\nend {}\n'
    for k, values in enumerate((("Test CPU", "1.0-b", "im2col 1", 1), ("Other", "1", "im2col 1", 1), ("Test CPU", "1.0-a", "im2col 1", 2), ("Test CPU", "1.0-a", "a - a -", 1),
                                ("Test CPU", "1.0-a", "blocked 1 im2col 2", 1), ("Test CPU", "1.0-a", "", 1))):
        write(f"engine_plan_{k}", rows.format(*values))
    write("engine_plan_more", rows.format("Test CPU", "1.0-a", "im2col 1", 1) + "more\n")
    write("engine_plan_short", rows.format("Test CPU", "1.0-a", "im2col 1", 1)[:-6])
    write("engine_plan_machine", "cortado plan 1\nmachine 7\nend 0\n")
    head = 'solver: "s" metric: "accuracy" '
    for k, more in enumerate(('vary { field: "base_lr" from: 2 to: 1 }', 'vary { field: "base_lr" from: 0 to: 1 log: true steps: 2 }', 'vary { field: "base_lr" from: 1 to: 2 steps: 1 }',
                              'vary { value: "1" }', 'vary { field: "momentum" value: "0" } vary { field: "momentum" value: "0" }', 'vary { field: "momentum" }', "",
                              'vary { field: "momentum" value: "0" } at_once: 0', 'vary { field: "momentum" value: "0" } search: RANDOM',
                              'vary { field: "momentum" value: "0" value: "0.9" } runs: 3', 'vary { field: "momentum" from: 0 to: 1 }',
                              'vary { field: "momentum" from: 0 to: 1 steps: 3 } vary { field: "layer[a].lr" value: "1" }',
                              'vary { field: "momentum" from: 0 to: 1 } search: HALVING runs: 4 first_iter: 10 reduce: 2', 'vary { field: "no" value: "1" }',
                              'vary { field: "momentum" from: 0 to: 1 } search: HALVING runs: 4 first_iter: 0 reduce: 2', 'vary { field: "base_lr" from: 1 to: 2 steps: 9999 } vary { field: "momentum" from: 0 to: 1 steps: 9 }')):
        write(f"beside_sweep_{k:02}", bytes([4]) + (head + more).encode())


# ---- tokenizers that split in each way, and bring characters into each form
def tokenizers():
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u00e9": 2, "\u0120": 3, "ab": 4}, "merges": ["a b"]}
    split = {"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Isolated"}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    steps = [dict(split, pattern={"Regex": r}) for r in ("\\p{N}+", "\\p{N}{1,3}", "\\p{L}+")] + [dict(split, behavior="Removed"), dict(split, pattern={"String": "a"})]
    steps += [dict(level, add_prefix_space=True, use_regex=True)]
    for k, step in enumerate(steps):
        write(f"tokenizer_split_{k}", json.dumps({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [step, level]}, "model": model, "x": "12 345 it's AB Ab\n\n ab?"}))
    some = "e\u0301 \u1e9b\u0323 \u0315\u0300\u05ae\u0300 \uac01 \u1100\u1161\u11a8 \u00c0 \u0130 \u03a3 \u2000 \u200b \u6f22"
    forms = [{"type": t} for t in ("NFC", "NFD", "Lowercase", "StripAccents")]
    for k, form in enumerate(forms + [{"type": "Sequence", "normalizers": forms}, {"type": "NFKC"}, {"type": "Sequence"}]):
        write(f"tokenizer_form_{k}", json.dumps({"normalizer": form, "pre_tokenizer": level, "model": model, "x": some}, ensure_ascii=False))
    for k, more in enumerate((dict(vocab=1), dict(vocab={"a": -1}), dict(vocab={"a": 0, "b": 0}), dict(dropout=0.5), dict(type="Unigram"), dict(merges=["ab"]), dict(merges=["a c"]),
                              dict(unk_token="no"), dict(merges=1))):
        write(f"tokenizer_model_{k}", json.dumps({"pre_tokenizer": level, "model": dict(model, **more)}))
    write("tokenizer_added", json.dumps({"added_tokens": [{"id": 9}], "pre_tokenizer": level, "model": model}))
    write("tokenizer_none", json.dumps({"model": model}))


# ---- records that hold files of images
def data():
    f = io.BytesIO()
    Image.new("RGB", (3, 2), (9, 99, 200)).save(f, "JPEG", quality=20)
    datum = field(1, 3) + field(2, 2) + field(3, 3) + field(4, f.getvalue()) + field(5, 7) + field(7, 1)
    write("datum_jpeg", datum)
    write("datum_no_jpeg", field(4, b"no image") + field(7, 1))
    write("datum_shape", field(1, 3) + field(2, 2) + field(3, 3) + field(4, b"12"))
    write("datum_zero", field(1, 0) + field(2, 2) + field(3, 3) + field(4, b"12"))
    box = b"".join(struct.pack("<Bf", i << 3 | 5, v) for i, v in ((1, 0.1), (2, 0.2), (3, 0.5), (4, 0.6)))
    for k, (group, corners) in enumerate(((field(1, 1), box), (b"", box), (field(1, 1), struct.pack("<Bf", 13, float("nan"))))):
        write(f"annotated_{k}", field(1, datum) + field(2, 0) + field(3, group + field(2, field(1, 0) + field(2, corners))))


# ---- nets of forks, and layers that stand for several
def forks():
    head = 'name: "n" layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }\n'
    write("prototxt_hints", head + 'default_forward_type: FLOAT16 engine: "MKLDNN" compile_net_state { bn_scale_remove: true }\n'
          'layer { name: "c" type: "Convolution" bottom: "d" top: "c" forward_type: FLOAT debug: true convolution_param { num_output: 2 kernel_size: 1 conv_algos_override: [ -1, 2 ] } '
          'device: "a" "b" }\nlayer { name: "r" type: "Dropout" bottom: "c" top: "c" dropout_param { engine: CAFFE random_seed: -3 } }\n')
    write("prototxt_hints_bad", head + "multinode { a { b: [ 1 ")
    write("prototxt_hints_worse", head + "engine 7")
    write("prototxt_hints_no_value", head + "engine: }")
    write("prototxt_fused", head + 'layer { name: "c" type: "Convolution" bottom: "d" top: "c" include { phase: TRAIN } exclude { stage: "s" } convolution_param { num_output: 2 kernel_size: 1 '
          'relu: true negative_slope: 0.1 } }\nlayer { name: "b" type: "BatchNorm" bottom: "c" top: "c" batch_norm_param { scale_bias: true relu: true scale_filler { type: "constant" } } }\n'
          'layer { name: "i" type: "InnerProduct" bottom: "c" top: "i" param { lr_mult: 1 } inner_product_param { num_output: 2 relu: true } }\nbn_stats_batch_size: 2\n')
    write("prototxt_heads", 'layer { name: "d" type: "Input" top: "d" top: "s" input_param { shape { dim: 2 dim: 4 dim: 8 } shape { dim: 2 dim: 4 } } }\n'
          'layer { name: "a" type: "MultiHeadAttention" bottom: "d" bottom: "s" top: "a" param { name: "w" } multi_head_attention_param { num_output: 8 segments: true weight_filler { type: "xavier" } } }\n'
          'layer { name: "b" type: "MultiHeadAttention" bottom: "d" bottom: "a" bottom: "a" top: "b" multi_head_attention_param { num_output: 8 bias_term: false } }\n')
    write("prototxt_repeat_in_place", 'input: "x" input_shape { dim: 1 dim: 8 } repeat { count: 2 prefix: "b%d_" bottom: "x" top: "x"\n'
          'layer { name: "a" type: "InnerProduct" bottom: "x" top: "x" inner_product_param { num_output: 8 } } layer { name: "r" type: "ReLU" bottom: "x" top: "x" } }\n'
          'layer { name: "e" type: "ReLU" bottom: "x" top: "x" }\n')
    layer = 'layer { name: "r" type: "ReLU" bottom: "x" top: "y" }'
    for k, text in enumerate(('repeat { count: 2 prefix: "%d%d" bottom: "x" top: "y" %s }', 'repeat { count: 2 prefix: "b" bottom: "x" top: "y" %s }', 'repeat { count: 0 bottom: "x" top: "y" %s }',
                              'repeat { count: 2000000000 prefix: "%d" bottom: "x" top: "y" %s }', 'repeat { count: 2 prefix: "%d" bottom: "z" top: "y" %s }', 'repeat { count: 2 prefix: "%d" bottom: "x" top: "z" %s }',
                              'repeat { count: 1 prefix: "" bottom: "x" top: "y" %s } layer { name: "r" type: "ReLU" bottom: "x" top: "q" }')):
        write(f"prototxt_repeat_{k}", 'input: "x" input_shape { dim: 1 }\n' + text.replace("%s", layer))
    write("prototxt_solver_nets", 'net_param { layer { name: "a" type: "DummyData" top: "a" dummy_data_param { shape { dim: 1 } } convolution_param { } } } test_net_param { } solver_type: 3 snapshot_prefix: "x/"\n')
    write("prototxt_solver_beside", 'net: "beside" test_net: "no" type: "SGD" solver_type: SGD\n')
    write("prototxt_escapes", 'name: "\\u00e9\\U0001F600\\x41\\101\\n" \r\nlayer { name: \'q\' type: "\\ud800" }')
    write("prototxt_numbers", '\xef\xbb\xbfbase_lr: -inf momentum: nan gamma: 0x1p3 max_iter: 0x10 random_seed: -0x2 snapshot_after_train: t display: 1f stepvalue: [1, 2]'.encode("latin-1"))
    write("environment_argv", "--net=a\n--max-iter\n3\n--set=base_lr=1\n--set\nmomentum=0\nfile\n--json\n--seed=x\n--overwrite=no\n")
    for k, text in enumerate(("--sover=a", "--", "a b", "--metrics", "--seed=-1", "--iterations=", "--metrics=-", "CORTADO_OVERWRITE=2", "CORTADO_ITERATIONS=a")):
        write(f"environment_{k}", text + "\n")


# ---- prototxts, of today and of Caffe before 2014: good ones
def old_nets():
    data = 'input: "data" input_dim: 1 input_dim: 3 input_dim: 4 input_dim: 4\n'
    write("prototxt_v1", (data + 'layers { name: "c" type: CONVOLUTION bottom: "data" top: "c" blobs_lr: 1 blobs_lr: 2 weight_decay: 1 '
          "convolution_param { num_output: 2 kernel_size: 3 } }\n"
          'layers { name: "l" type: SOFTMAX_LOSS bottom: "c" bottom: "data" top: "l" include { phase: TRAIN } }\n').encode())
    write("prototxt_v0", (data + 'layers { layer { name: "p" type: "padding" pad: 1 } bottom: "data" top: "p" }\n'
          'layers { layer { name: "c" type: "conv" num_output: 2 kernelsize: 3 weight_filler { type: "xavier" } blobs_lr: 1 } bottom: "p" top: "c" }\n'
          'layers { layer { name: "s" type: "softmax_loss" } bottom: "c" bottom: "data" }\n').encode())
    write("prototxt_repeat", ('input: "x" input_shape { dim: 1 dim: 8 }\nrepeat { count: 3 prefix: "b%d_" bottom: "x" top: "y"\n'
          '  layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } inner_product_param { num_output: 8 } }\n'
          '  repeat { count: 2 prefix: "c%d_" bottom: "a" top: "c" layer { name: "r" type: "ReLU" bottom: "a" top: "c" } }\n'
          '  layer { name: "e" type: "Eltwise" bottom: "c" bottom: "x" top: "y" } }\n').encode())
    write("prototxt_solver", (b'net: "n" test_iter: 2 test_interval: 5 base_lr: 0.1 lr_policy: "multistep" stepvalue: 3 stepvalue: 5\n'
          b'max_iter: 9 solver_type: ADAM compression { type: TOPK density: 0.01 } comm { bucket_mb: 1 } outer { local_iter: 3 }\n'))


for make in (images, blobs, records, texts, runs, beside, forms, http, boxes, jobs, requests, machines, refused, tokenizers, data, forks, old_nets):
    make()
