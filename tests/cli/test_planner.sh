# cortado plan: the solvers of chains and pipelines, their answers, and every error in one line.
. "$ROOT/tests/cli/lib.sh"

answers() { # NAME FILE-OPTION TEXT: stdout of --json is that line, and nothing else
    "$CORTADO" plan "$2" --json >out 2>errors
    is "$1" [ "$? $(cat out) $(wc -l <out) $(cat errors)" = "0 $3 1 " ]
}
fails() { # NAME FILE-OPTION PATTERN: 2, with one line
    runs "$1" 2 "$3" "$CORTADO" plan "$2" --json
    is "$1_in_one_line" [ "$(wc -l <out)" = 1 ]
}

# ---- chains
chain() { # LIMIT IN_FLIGHT: three blocks, one strategy; the first reshard_s is ignored
    block='{"time_s":[1],"again_s":[0.5],"weight":[1],"kept":[4],"input":[1]}'
    echo "{\"strategies\":1,\"limit\":$1,\"in_flight\":$2,\"blocks\":[$block,$block,$block]," \
        "\"reshard_s\":[null,[[0.25]],[[0.25]]]}"
}
chain 15 1 >roomy.json
answers keeps_all --chain=roomy.json '{"step_s":3.5,"strategy":[0,0,0],"mode":["keep","keep","keep"]}'
chain 12 1 >small.json
answers three_segments --chain=small.json '{"step_s":5,"strategy":[0,0,0],"mode":["start","start","start"]}'
chain 9 1 >tight.json
answers nothing_fits --chain=tight.json '{"step_s":null,"strategy":[],"mode":[]}'
chain 19 4 >segment.json # 3 + 4 of the one input + 12
answers one_segment --chain=segment.json '{"step_s":5,"strategy":[0,0,0],"mode":["start","continue","continue"]}'
chain 9223372036854775807 9223372036854775807 >huge.json
answers huge_numbers --chain=huge.json '{"step_s":null,"strategy":[],"mode":[]}'
cat >two.json <<'EOF'
{"strategies":2,"limit":5,"in_flight":1,"blocks":[
 {"time_s":[1,0.1],"again_s":[0.5,0.5],"weight":[1,2],"kept":[0,3],"input":[0,0]},
 {"time_s":[1,0.2],"again_s":[0.5,0.5],"weight":[0,0],"kept":[0,0],"input":[0,0]}],
 "reshard_s":[[],[[0,5],[7,0]]]}
EOF
answers digits --chain=two.json '{"step_s":0.30000000000000004,"strategy":[1,1],"mode":["keep","keep"]}'

runs table 0 '^0 +0 +1\.5 +1 +4 +made again$' "$CORTADO" plan --chain=small.json
is table_step grep -q '^step 5 s with 10 slots$' out
runs table_of_runs 0 '^0-2 +0 +3 +3 +12 +kept$' "$CORTADO" plan --chain=roomy.json
runs table_of_nothing 0 '^nothing fits$' "$CORTADO" plan --chain=tight.json
runs json_in_a_file 0 '^step 3.5 s' "$CORTADO" plan --chain=roomy.json --json=answer.json
is written grep -q '"step_s":3.5' answer.json

# ---- pipelines
cat >pipeline.json <<'EOF'
{"time_s":[[1,2,3],[1,2,3]],"cut_s":[[10,0.5,"not read"]],"data_s":[[5,0,0],[0,0,4]],"micro_batches":3}
EOF
answers cut --pipeline=pipeline.json '{"step_s":19,"layers":[2,1]}'
runs pipeline_table 0 '^1 +2 +3 +0 +4$' "$CORTADO" plan --pipeline=pipeline.json
is pipeline_stage grep -Eq '^0 +0-1 +3 +0.5 +5$' out
is pipeline_step grep -q '^step 19 s$' out
echo '{"time_s":[[1],[1]],"cut_s":[[0]],"data_s":[[1],[1]],"micro_batches":1}' >many.json
answers more_stages --pipeline=many.json '{"step_s":null,"layers":[]}'
echo '{"time_s":[[0.1,0.2]],"cut_s":[],"data_s":[[0,0]],"micro_batches":2}' >one.json
answers one_stage --pipeline=one.json '{"step_s":0.60000000000000009,"layers":[2]}'
runs more_stages_table 0 '^no partition: more stages than layers$' "$CORTADO" plan --pipeline=many.json

# ---- errors
runs no_file 2 'plan needs one of --model=FILE, --solver=FILE, --chain=FILE and --pipeline=FILE' "$CORTADO" plan
runs of_nets 2 'out is for plans of --model=FILE or --solver=FILE' "$CORTADO" plan --chain=roomy.json --out=x.plan
runs ranks_of_nets 2 'ranks is for plans of --model=FILE' "$CORTADO" plan --pipeline=one.json --ranks=2
runs two_files 2 'needs one of' "$CORTADO" plan --chain=roomy.json --pipeline=one.json
runs not_there 3 'gone.json: No such file' "$CORTADO" plan --chain=gone.json
runs other_option 2 'did you mean --chain' "$CORTADO" plan --chian=roomy.json

head -c 100 roomy.json >cut.json
fails truncated --chain=cut.json 'cut.json:1:[0-9]+: not JSON'
: >empty.json
fails empty --pipeline=empty.json 'empty.json:1:0: not JSON'
echo '[1]' >list.json
fails no_object --chain=list.json 'list.json: expected an object'

edit() { # NAME SED PATTERN: a good chain, edited; PATTERN "": no JSON any more
    sed "$2" roomy.json >edited.json
    fails "$1" --chain=edited.json "edited.json:${3:-1:[0-9]+: not JSON}"
}
edit no_limit 's/"limit"/"most"/' ' limit: expected a whole number of at least 0, found nothing'
edit negative_limit 's/"limit":15/"limit":-1/' ' limit: .*, found -1'
edit real_limit 's/"limit":15/"limit":15.5/' ' limit: .*, found 15.5'
edit text_limit 's/"limit":15/"limit":"15"/' ' limit: .*, found "15"'
edit large_limit 's/"limit":15/"limit":99999999999999999999/' ''
edit none_in_flight 's/"in_flight":1/"in_flight":0/' ' in_flight: expected a whole number of at least 1'
edit no_strategies 's/"strategies":1/"strategies":0/' ' strategies: expected a whole number from 1 to 64'
edit many_strategies 's/"strategies":1/"strategies":65/' ' strategies: expected a whole number from 1 to 64'
edit two_strategies 's/"strategies":1/"strategies":2/' \
    ' blocks\[0\].time_s: expected a list of 2 times, found a list of 1'
edit no_blocks 's/"blocks":.*}\],/"blocks":[],/' ' blocks: expected a list of 1 to 100000 blocks'
edit no_block 's/"blocks":\[{[^}]*}/"blocks":[7/' ' blocks\[0\]: expected an object, found 7'
edit negative_time 's/"time_s":\[1\]/"time_s":[-1]/2' ' blocks\[1\].time_s\[0\]: .*, found -1'
edit infinite_time 's/"again_s":\[0.5\]/"again_s":[1e999]/3' ''
edit large_time 's/"again_s":\[0.5\]/"again_s":[1e201]/3' \
    ' blocks\[2\].again_s\[0\]: expected a time in seconds from 0 to 1e200, found 1'
edit no_time 's/"time_s":\[1\]/"time_s":[null]/' ' blocks\[0\].time_s\[0\]: .*, found null'
edit not_a_number 's/"time_s":\[1\]/"time_s":[NaN]/' ''
edit part_of_a_slot 's/"kept":\[4\]/"kept":[4.5]/' ' blocks\[0\].kept\[0\]: expected a whole number .*, found 4.5'
edit negative_size 's/"input":\[1\]/"input":[-4]/3' ' blocks\[2\].input\[0\]: .*, found -4'
edit no_weight 's/"weight"/"weights"/' ' blocks\[0\].weight: expected a list of 1 sizes in slots, found nothing'
edit no_reshard 's/"reshard_s"/"reshard"/' ' reshard_s: expected a list of 3 blocks, found nothing'
edit short_reshard 's/,\[\[0.25\]\]\]/]/' ' reshard_s: expected a list of 3 blocks, found a list of 2'
edit flat_reshard 's/\[\[0.25\]\]/[0.25]/' ' reshard_s\[1\]\[0\]: expected a list of 1 times, found 0.25'
edit negative_reshard 's/0.25/-0.25/2' ' reshard_s\[2\]\[0\]\[0\]: .*, found -0.25'
edit twice 's/"limit":15/"limit":15,"limit":16/' ''
edit too_many_slots 's/"limit":15/"limit":1000000/; s/4\]/400003]/' \
    ' limit: the chain can use [0-9]+ slots of it beside its least weights, expected at most 4095'

edit() { # the same of a pipeline
    sed "$2" pipeline.json >edited.json
    fails "$1" --pipeline=edited.json "edited.json:$3"
}
edit no_micro_batches 's/"micro_batches":3/"micro_batches":0/' ' micro_batches: expected a whole number from 1 to'
edit real_micro_batches 's/"micro_batches":3/"micro_batches":2.5/' ' micro_batches: .*, found 2.5'
edit no_stages 's/"time_s":.*,"cut_s"/"time_s":[],"cut_s"/' ' time_s: expected a list of 1 to 4096 stages'
edit no_layers 's/\[\[1,2,3\],/[[],/' ' time_s\[0\]: expected a list of 1 to 10000 times'
edit uneven 's/\[1,2,3\]\]/[1,2]]/' ' time_s\[1\]: expected a list of 3 times, found a list of 2'
edit no_cuts 's/"cut_s":[^"]*"not read"\]\]/"cut_s":[]/' ' cut_s: expected a list of 1 cuts, one fewer than stages'
edit short_cuts 's/,"not read"//' ' cut_s\[0\]: expected a list of 3 times, found a list of 2'
edit text_in_cuts 's/0.5,/"x",/' ' cut_s\[0\]\[1\]: expected a time in seconds'
edit negative_data 's/\[5,0,0\]/[5,-2,0]/' ' data_s\[0\]\[1\]: .*, found -2'
edit no_data 's/"data_s":[^"]*]],/"data_s":{},/' ' data_s: expected a list of 2 stages, found an object'
finish
