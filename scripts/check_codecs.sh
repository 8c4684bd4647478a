#!/bin/sh
# Fails when a codec is not everywhere where one has to be: its operations, the schema's value, the
# page for users and the MPI tests. docs/contributing.md, "A codec", lists these places.
# Usage: scripts/check_codecs.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

bad=0
miss() { # CODEC WHAT
    echo "codec $1: $2" >&2
    bad=1
}
codecs=$(sed -n 's/^ *_do(\([a-z0-9_]*\)).*/\1/p' comm/codec/codec_types.h)
values=$(awk '/^message CompressionParameter/ { inside = 1 } inside && /enum Type/ { list = 1; next }
    list && /}/ { exit } list { print tolower($1) }' framework/proto/cortado.proto)
[ -n "$codecs" ] && [ -n "$values" ] || { echo 'no codecs found' >&2; exit 1; }

for c in $codecs; do
    upper=$(echo "$c" | tr '[:lower:]' '[:upper:]')
    grep -qs "^const ct_codec_ops ct_codec_$c = {" comm/codec/*.c ||
        miss "$c" "no comm/codec/*.c defines ct_codec_$c"
    echo "$values" | grep -qx "$c" ||
        miss "$c" "CompressionParameter.Type in framework/proto/cortado.proto has no $upper"
    grep -q "^| \`$upper\` |" docs/compression.md ||
        miss "$c" "the table of docs/compression.md has no row for \`$upper\`"
    case $c in none | auto) continue ;; esac
    grep -qs "ct_codec_$c\b" tests/mpi/comm/codec/test_co*.c ||
        miss "$c" "tests/mpi/comm/codec/test_codecs.c and test_codec_training.c do not run ct_codec_$c"
done
for v in $values; do
    echo "$codecs" | grep -qx "$v" ||
        miss "$v" 'the schema has it, CT_CODECS in comm/codec/codec_types.h has not'
done
exit $bad
