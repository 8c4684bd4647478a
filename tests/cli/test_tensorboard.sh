# train --tensorboard=DIR: TensorBoard's own reader returns every number of the metrics, on one and two ranks, with
# compression and several test nets, resumed, written over; records are whole; every error in one line.
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_OVERWRITE
make_case
sed -i 's/^test_iter: 2/test_state { } test_state { level: 1 } test_iter: 2 test_iter: 1/; s/^max_iter: 20 display: 10/max_iter: 20 display: 5/' solver.prototxt
python=$("$ROOT/scripts/test_venv.sh" tensorboard 2>venv.log)
reads() { # NAME FOLDER METRICS NUMBERS: at least so many
    if [ -x "${python:-}" ]; then
        runs "$1" 0 '^[0-9]+ numbers in [0-9]+ curves' "$python" "$ROOT/tests/cli/tensorboard_has.py" "$2" "$3"
        is "$1_all" [ "$(sed -n 's/ numbers in.*//p' out)" -ge "$4" ]
    else
        skip "$1" "no tensorboard"
    fi
}
train="$CORTADO train --solver=solver.prototxt"

for n in 1 2; do
    runs trains_$n 0 'Optimization Done' $JOB $n $train --tensorboard=tb$n --metrics=m$n.jsonl --set=snapshot_prefix=s$n
    reads numbers_$n tb$n m$n.jsonl 38
    is one_file_$n [ "$(ls tb$n | wc -l)" = 1 ]
done
runs alone 0 'Optimization Done' $train --tensorboard=alone --set=snapshot_prefix=a
is without_metrics test -s "$(echo alone/events.out.tfevents.*)"
runs compressed 0 'Optimization Done' $JOB 2 $train --tensorboard=tbc --metrics=mc.jsonl --set=snapshot_prefix=c --compression=redsync:density=0.05,min_bytes=1024
reads compressed_numbers tbc mc.jsonl 60
runs in_a_run 0 'Optimization Done' $train --tensorboard=rtb --run=r
reads run_numbers rtb r/metrics.jsonl 38

# ---- records by their own rules: lengths, masked CRC32C, versions, a START before the numbers
is records_are_whole python3 - <<'EOF2'
import glob, struct
table = []
for i in range(256):
    c = i
    for _ in range(8):
        c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
    table.append(c)
def masked(data):
    c = 0xFFFFFFFF
    for b in data:
        c = table[(c ^ b) & 255] ^ (c >> 8)
    c ^= 0xFFFFFFFF
    return (((c >> 15) | (c << 17)) + 0xA282EAD8) & 0xFFFFFFFF
assert masked(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF  # RFC 3720's check
data, at, events = open(glob.glob("tb1/*")[0], "rb").read(), 0, []
while at < len(data):
    n, = struct.unpack("<Q", data[at : at + 8])
    assert struct.unpack("<I", data[at + 8 : at + 12])[0] == masked(data[at : at + 8])
    event = data[at + 12 : at + 12 + n]
    assert struct.unpack("<I", data[at + 12 + n : at + 16 + n])[0] == masked(event)
    events.append(event)
    at += 16 + n
assert b"\x1a\x0dbrain.Event:2" in events[0] and events[1].endswith(b"\x3a\x02\x08\x01"), events[:2]
assert any(b"train/loss" in e for e in events) and any(b"test_1/accuracy" in e for e in events)
EOF2

# ---- runs that go on, and runs that begin anew
runs spares 2 'tb1 holds the events of an earlier run: --overwrite has readers drop them, --snapshot=auto goes on' $train --tensorboard=tb1 --set=snapshot_prefix=x
runs goes_on 0 'Optimization Done' $train --tensorboard=tb1 --metrics=m1.jsonl --snapshot=s1_iter_10.solverstate.h5 --set=snapshot_prefix=s1 --iterations=25
is two_files [ "$(ls tb1 | wc -l)" = 2 ]
reads resumed tb1 m1.jsonl 40
runs overwrites 0 'Optimization Done' $train --tensorboard=tb2 --metrics=m2.jsonl --set=snapshot_prefix=s2 --overwrite --iterations=10
reads overwritten tb2 m2.jsonl 16

# ---- what is wrong
runs no_place 3 'cannot make the folder nowhere/tb for events: No such file' $train --tensorboard=nowhere/tb --set=snapshot_prefix=y
echo >file
runs a_file 3 'cannot list the events of file: Not a directory' $train --tensorboard=file --set=snapshot_prefix=y
runs of_train 2 'option --tensorboard belongs to: train' "$CORTADO" test --tensorboard=tb --model=net.prototxt --weights=s1_iter_10.caffemodel.h5
finish
