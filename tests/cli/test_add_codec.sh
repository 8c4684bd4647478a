# The check of codecs: it passes, and fails by name for each place that a new codec misses.
. "$ROOT/tests/cli/lib.sh"
check="$ROOT/scripts/check_codecs.sh"
runs as_it_is 0 '' "$check"

# what the check reads, with a codec in each of its places
mkdir -p tree/comm tree/framework/proto tree/docs tree/tests/mpi/comm/codec
cp -r "$ROOT/comm/codec" tree/comm/
cp "$ROOT/framework/proto/cortado.proto" tree/framework/proto/
cp "$ROOT/docs/compression.md" tree/docs/
cp "$ROOT"/tests/mpi/comm/codec/test_co*.c tree/tests/mpi/comm/codec/
add_source() { echo 'const ct_codec_ops ct_codec_toy = { .name = "toy" };' >tree/comm/codec/codec_toy.c; }
add_line() { sed -i 's/^    _do(auto)/    _do(toy) \\\n    _do(auto)/' tree/comm/codec/codec_types.h; }
add_value() { sed -i '/^message CompressionParameter/,/}/s/^    AUTO = 7;/&\n    TOY = 8;/' tree/framework/proto/cortado.proto; }
add_row() { sed -i 's/^| `AUTO` |/| `TOY` | every other element | stays in V | |\n&/' tree/docs/compression.md; }
add_test() { echo '/* runs ct_codec_toy */' >>tree/tests/mpi/comm/codec/test_codecs.c; }

add_line
runs no_source 1 'codec toy: no comm/codec/.* defines ct_codec_toy' "$check" tree
add_source
runs no_value 1 'codec toy: CompressionParameter.Type in .* has no TOY' "$check" tree
add_value
runs no_row 1 'codec toy: the table of docs/compression.md has no row' "$check" tree
add_row
runs no_test 1 'codec toy: .* do not run ct_codec_toy' "$check" tree
add_test
runs complete 0 '' "$check" tree
sed -i '/^    _do(toy)/d' tree/comm/codec/codec_types.h
runs no_line 1 'codec toy: the schema has it, CT_CODECS .* has not' "$check" tree
finish
