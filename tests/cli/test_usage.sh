# Options, their twins, help, and what a wrong command line leads to.
. "$ROOT/tests/cli/lib.sh"

runs help 0 'cortado train' "$CORTADO" --help
runs version 0 '^cortado [0-9]+\.[0-9]+' "$CORTADO" --version
runs no_verb 2 'cortado VERB --help' "$CORTADO"
runs verb_help 0 'CORTADO_COMPRESSION' "$CORTADO" train --help
# help, however it is asked for; a wrong command line beside it is no matter
for words in 'help train' 'train help' 'train -h' 'train --solver=nothere --help' 'train --solvr=x --help'; do
    name=$(echo "help_$words" | tr ' ' _)
    runs "$name" 0 '^usage: cortado train ' "$CORTADO" $words
    is one_verb sh -c 'grep -q -- "^  --solver=FILE" out && ! grep -q -- "^  --labelmap" out'
done
for words in 'convert --help' 'help convert' 'convert help' 'bench -h'; do
    name=$(echo "kinds_$words" | tr ' ' _)
    runs "$name" 0 'KIND --help lists the options of one' "$CORTADO" $words
done
is kinds_of_bench grep -q '^  codec  *selections' out
runs help_kind 0 '^cortado convert images: image files' "$CORTADO" help convert images
runs kind_help 0 '^  --labelmap=' "$CORTADO" convert annotated --from=x --help
runs scale_help 0 '^  --ablate' "$CORTADO" scale --solver=x --help
runs simulate_help 0 '^usage: cortado simulate ' "$CORTADO" simulate help
runs help_unknown_verb 2 'unknown verb "trian"; did you mean "train"' "$CORTADO" help trian
runs help_unknown_kind 2 'convert: unknown kind "imges"; did you mean "images"' "$CORTADO" convert imges --help
runs no_kind 2 'cortado convert: what of mnist, cifar10, images, .*digits' "$CORTADO" convert
runs no_bench 2 'cortado bench: what of comm, codec, serve' "$CORTADO" bench
runs no_option 2 '"solver.prototxt" is no option; they begin with --, see cortado train --help' "$CORTADO" train solver.prototxt
runs unknown_verb 2 'unknown verb "trian"; did you mean "train"' "$CORTADO" trian
runs unknown_option 2 'unknown option --solvr; did you mean --solver' "$CORTADO" train --solvr=x
runs option_of_another 2 'option --snapshot belongs to: train' "$CORTADO" test --snapshot=x
runs option_of_others 2 'option --run belongs to: train test predict$' "$CORTADO" serve --run=x
runs no_solver 2 'give --solver=FILE' "$CORTADO" train
runs no_weights 2 'needs --weights' "$CORTADO" test --model=x
runs missing_solver 3 'nothere.prototxt: No such file' "$CORTADO" train --solver=nothere.prototxt
mkdir -p nets/lenet
touch nets/lenet/solver.prototxt
runs near_file 3 '[]] nets/lenet/slover.prototxt: No such file or directory; did you mean nets/lenet/solver.prototxt\?$' "$CORTADO" train --solver=nets/lenet/slover.prototxt
runs near_folder 3 'there is no folder nets/lent; did you mean nets/lenet\?$' "$CORTADO" train --solver=nets/lent/solver.prototxt
echo 'base_lr: 0.1 lr_policy: "fixed" max_iter: 1
  net: "train_val.prototxt"' >nets/lenet/solver.prototxt
runs near_net 3 '[]] nets/lenet/solver.prototxt:2:3: net "train_val.prototxt": No such file or directory; nor is it beside the solver$' "$CORTADO" train --solver=nets/lenet/solver.prototxt
runs set_net 3 '[]] --set: net "nets/lenet/n": No such file' "$CORTADO" train --solver=nets/lenet/solver.prototxt --set=net=nets/lenet/n
touch nothing.prototxt
runs empty_net 2 '[]] nothing.prototxt: net "" has no layer' "$CORTADO" check --model=nothing.prototxt
mkdir folder
runs folder_for_solver 3 'folder: a folder; expected a file' "$CORTADO" train --solver=folder
name=$(printf 'new\nline\033[31m')
runs odd_name 3 '[]] new.nline.x1b.31m: No such file' "$CORTADO" train --solver="$name"
is odd_name_in_one_line test "$(grep -c . out)" = "$(grep -c '^[IE][0-9]' out)"
runs long_name 3 '[]] nnnn.* … .*nnnn: File name too long$' "$CORTADO" train --solver="$(printf 'n%05000d' 0 | tr 0 n)"
runs missing_model 3 'nothere.prototxt: No such file' "$CORTADO" time --model=nothere.prototxt
runs twin_is_read 3 'fromenv.prototxt: No such file' env CORTADO_SOLVER=fromenv.prototxt "$CORTADO" train
runs twin_is_checked 2 'CORTADO_ITERATIONS=many' env CORTADO_ITERATIONS=many "$CORTADO" train --solver=x
runs count_of_64_bits 2 'threads=4294967297: expected a whole number, 0 to 2147483647$' "$CORTADO" info --threads=4294967297
for n in count shards stripe; do
    runs none_$n 2 "$n=0: expected a whole number, 1 to 2147483647\$" "$CORTADO" convert digits --to=none --$n=0
done
runs twin_misspelt 3 'CORTADO_COMPRESION is no option; did you mean CORTADO_COMPRESSION' env CORTADO_COMPRESION=topk "$CORTADO" train --solver=nothere
runs info 0 'features .*lmdb' "$CORTADO" info
is info_measures grep -Eq '^limits +[0-9.]+ GFLOP/s .*memory [0-9.]+ GB/s read' out
runs info_without_limits 0 'features .*lmdb' "$CORTADO" info --limits=false
is info_measures_nothing sh -c '! grep -q ^limits out'
runs layers 0 '^Convolution +1 or more +1 or more +yes' "$CORTADO" info --layers
runs layers_refused 0 'known and refused, with what to use instead:.* Proposal' "$CORTADO" info --layers
runs reference 0 '^## SolverParameter' "$CORTADO" info --config-reference
is reference_is_current cmp -s out "$ROOT/docs/config-reference.md"
# what the reference calls refused is refused
is refusals_are_told test "$(grep -c '| Refused: ' "$ROOT/docs/config-reference.md")" -ge 1
for field in 'noise_param { convert_to_lab: true }'; do
    cat >refused.prototxt <<END
layer { name: "in" type: "Data" top: "data" transform_param { $field } data_param { source: "x" batch_size: 1 synthetic_shape { dim: 1 dim: 4 dim: 4 } } }
END
    runs "refused_${field%%[ :]*}" 2 'is refused' "$CORTADO" check --model=refused.prototxt
done
for type in Proposal; do
    echo "layer { name: \"x\" type: \"$type\" top: \"x\" }" >refused.prototxt
    runs "refused_$type" 2 "$type" "$CORTADO" check --model=refused.prototxt
done

make_case
runs set_unknown 2 'base_ler.*base_lr' "$CORTADO" train --solver=solver.prototxt --set=base_ler=1
runs set_batchsize 2 '"batchsize"; did you mean "batch_size"\?$' "$CORTADO" train --solver=solver.prototxt --set=batchsize=8
runs field_as_option 2 'unknown option --base_lr; a field of solver or net is given as --set=base_lr=VALUE; see cortado train --help$' "$CORTADO" train --solver=solver.prototxt --base_lr=0.1
runs set_no_value 2 'expected FIELD=VALUE' "$CORTADO" train --solver=solver.prototxt --set=base_lr
runs set_wrong_value 2 'base_lr' "$CORTADO" train --solver=solver.prototxt --set=base_lr=fast
runs set_unknown_layer 2 'cnv' "$CORTADO" train --solver=solver.prototxt '--set=layer[cnv].convolution_param.num_output=3'
runs set_batch_zero 2 'batch_size=0' "$CORTADO" train --solver=solver.prototxt --set=batch_size=0
runs bad_compression 2 'expected one of none, bf16, topk, redsync' "$CORTADO" train --solver=solver.prototxt --compression=zip
runs bad_compression_field 2 'densty' "$CORTADO" train --solver=solver.prototxt --compression=topk:densty=0.1
runs weights_and_snapshot 2 'not both' "$CORTADO" train --solver=solver.prototxt --snapshot=a.solverstate.h5 --weights=b.caffemodel

# what is printed is there, or the exit code says that it is not; a closed stream takes no file's number
export CORTADO
lost='cannot write to standard output: not all that was printed is there$'
for words in '--version' 'help train' 'info --layers' 'check --model=net.prototxt' 'time --model=net.prototxt --iterations=1 --limits=false'; do
    name=$(echo "$words" | tr -c 'a-z\n' _)
    [ ! -c /dev/full ] || runs "full_$name" 3 "$lost" sh -c "exec \"\$CORTADO\" $words >/dev/full"
    runs "closed_$name" 3 "$lost" sh -c "exec \"\$CORTADO\" $words >&-"
done
runs closed_streams 3 "$lost" sh -c 'exec "$CORTADO" find_rate --solver=solver.prototxt --iterations=10 --csv=rates.csv <&- >&-'
is rates_are_whole sh -c 'head -n 1 rates.csv | grep -q rate && [ "$(wc -l <rates.csv)" = 11 ]'

# what is written is no file of another option's, and takes no device's or pipe's place
cp net.prototxt other.prototxt
ln -s net.prototxt link.prototxt
for name in net.prototxt ./net.prototxt link.prototxt; do
    runs "written_is_read_$name" 2 "json=$name: the file of --model; expected another one$" "$CORTADO" check --model=net.prototxt --json=$name
done
runs written_is_one_of_two 2 'trace=link.prototxt: the file of --weights' "$CORTADO" train --solver=solver.prototxt --weights=solver.prototxt,net.prototxt --trace=link.prototxt
is net_is_as_it_was cmp net.prototxt other.prototxt
runs written_twice 2 '=one: the file of --' "$CORTADO" find_rate --solver=solver.prototxt --json=one --csv=one
mkfifo pipe
runs pipe_is_no_file 3 'cannot write pipe: not a regular file$' "$CORTADO" check --model=net.prototxt --json=pipe
is pipe_is_there test -p pipe
runs late_refusal 2 'parallel=tensor:0: expected' "$CORTADO" bench serve --model=net.prototxt --parallel=tensor:0 --trace=late.json
is no_trace_is_left test ! -e late.json
runs result_nowhere 3 'cannot write no/codec.json' "$CORTADO" bench codec --count=1000 --json=no/codec.json
for value in ' 0.5' +0.5 0x1p-1 0.5x 1e-400x nan inf; do
    runs no_density 2 'density=.*: expected a number over 0, up to 1$' "$CORTADO" bench codec --count=1000 --density="$value"
done
for size in ' 8x8' 8x+8 '8x 8' 0x8x8 8x8x8; do
    runs no_size 2 'resize=.*: expected HEIGHTxWIDTH' "$CORTADO" convert images --from=. --to=none --resize="$size"
done
runs roofline_of_data 2 'roofline is of layers that run, and --data runs none' "$CORTADO" time --model=net.prototxt --data --roofline=r.svg
runs two_questions 2 'topology and --layers: expected one of them$' "$CORTADO" info --layers --topology=daint
runs picture_of_nothing 2 'picture shows samples of a set' "$CORTADO" info --topology=daint --picture=p.png
runs model_without_picture 2 'model is for the samples that --picture=FILE shows' "$CORTADO" info --model=net.prototxt
# names as the text format has strings and lists, and of two lines
for name in "'quoted" '"both"' '[list]' 'two
lines' 'back\slash'; do
    runs weights_name 3 '[]] .*: No such file or directory$' "$CORTADO" train --solver=solver.prototxt --weights="$name.npz"
done
runs empty_algorithm 2 'algorithm=ring,: expected names with commas between$' "$CORTADO" bench comm --sizes=1K --algorithm=ring,
runs threads_of_a_job 2 '[0-9]+ threads are more than the machine takes' env OMP_NUM_THREADS=9999999 "$CORTADO" time --model=net.prototxt
runs threads_alone 2 '[0-9]+ threads are more than the machine takes' env OMP_NUM_THREADS=9999999 "$CORTADO" convert digits --to=none --count=20
runs threads_of_a_server 2 '[0-9]+ threads are more than the machine takes' env OMP_NUM_THREADS=9999999 "$CORTADO" serve --model=net.prototxt

# precedence and origins, in the header
CORTADO_SET='base_lr=0.3;momentum=0.5' CORTADO_COMPRESSION=bf16 "$CORTADO" train --solver=solver.prototxt \
    --set=base_lr=0.02 --set=batch_size=8 '--set=layer[ip].inner_product_param.num_output=11' --iterations=1 >out 2>&1
is origin_command grep -q 'config: base_lr = 0.02 (command line)' out
is origin_environment grep -q 'config: momentum = 0.5 (environment)' out
is origin_file grep -q 'config: weight_decay = 0.0005 (solver.prototxt)' out
is origin_default grep -q 'config: default .*iter_size = 1' out
is twin_of_compression grep -q 'config: compression.type = BF16 (environment)' out
is set_batch grep -q 'batch size 8 on rank 0' out
is set_layer grep -q 'config: layer\[ip\].inner_product_param.num_output = 11 (command line)' out
finish
