# Every layer of BVLC in Caffe itself and here: tests/golden/against_caffe.py. CORTADO_CAFFE names a caffe.
. "$ROOT/tests/cli/lib.sh"
if [ -z "${CORTADO_CAFFE:-}" ] || ! command -v python3 >/dev/null; then
    skip against_caffe "CORTADO_CAFFE names no caffe, or there is no python3"
    finish
fi
LIMIT=900
runs against_caffe 0 ' 0 of them not as in Caffe' python3 "$ROOT/tests/golden/against_caffe.py" "$CORTADO_CAFFE"
finish
