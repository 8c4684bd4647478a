#!/bin/sh
# cortado scale: a measured study of a tiny net, its report, resumption, failures, nonsense.
. "$ROOT/tests/cli/lib.sh"
export MPIRUN MPIRUN_FLAGS

cat >tiny.prototxt <<'EOF2'
name: "Tiny"
layer { name: "in" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 8 dim: 1 dim: 12 dim: 12 } shape { dim: 8 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
EOF2
scale="$CORTADO scale --model=tiny.prototxt --iterations=4 --repeats=2 --sizes=4K,64K"

# ---- a study, and what is in it
runs scale_measured 0 'report: st/report.md' $scale --ranks=1,2 --mode=weak,strong --ablate=overlap-off --out=st
count() { ls st/runs | grep -c "$1"; }
is scale_one_file_a_run sh -c '[ $(ls st/runs | grep -c "^measured-") = 16 ] && [ $(ls st/runs | grep -c "^bench-") = 1 ]'
is scale_csv_rows [ "$(grep -c '^"Tiny"' st/points.csv)" = 8 ]
is scale_base_is_one sh -c "grep '\"weak\",\"default\"' st/points.csv | grep ',1,1,1,8,' | cut -d, -f20 | grep -qx 1"
is scale_names_the_base grep -q 'base of \*default\*, measured: 1 rank on 1 node' st/report.md
is scale_collectives grep -Eq '^\| 65536 \| [0-9.e+]+ \(' st/report.md
is scale_says_no_failure sh -c '! grep -q "^\* failed" st/report.md'
# weak: the batch grows with the ranks; strong: it stays
is scale_weak_batch sh -c 'grep "\"weak\",\"default\"" st/points.csv | cut -d, -f9 | tr "\n" " " | grep -qx "8 16 "'
is scale_strong_batch sh -c 'grep "\"strong\",\"default\"" st/points.csv | cut -d, -f9 | tr "\n" " " | grep -qx "8 8 "'
is scale_plots python3 -c "
import glob, xml.dom.minidom
for p in ('throughput', 'efficiency', 'parts', 'ablations'):
    files = glob.glob('st/plots/%s-tiny-*-weak-b8.svg' % p)
    assert len(files) == 1, (p, files)
    titles = [t.firstChild.data for t in xml.dom.minidom.parse(files[0]).getElementsByTagName('title')]
    # under the pointer: a point or a bar for 1 and for 2 ranks, of what was measured or emulated
    for ranks in ('1', '2'):
        assert any(t.startswith(('measured, ' + ranks + ':', 'emulated, ' + ranks + ':', ranks + ' measured, compute',
                                 ranks + ' emulated, compute', 'overlap-off, ' + ranks + ':')) for t in titles[1:]), (p, titles)
xml.dom.minidom.parse('st/plots/collectives.svg')
"
is scale_shows_plots sh -c '[ "$(grep -c "^!\[" st/report.md)" = "$(ls st/plots | wc -l)" ]'

# ---- the same command does nothing again; one run lost is one run done
before=$(cat st/runs/* | cksum)
runs scale_resumes 0 '17 runs are there already, 0 to do' $scale --ranks=1,2 --mode=weak,strong --ablate=overlap-off --out=st
is scale_keeps_runs [ "$(cat st/runs/* | cksum)" = "$before" ]
rm "$(ls st/runs/measured-*-strong-default-* | head -n 1)"
runs scale_redoes_one 0 '16 runs are there already, 1 to do' $scale --ranks=1,2 --mode=weak,strong --ablate=overlap-off --out=st
f=$(ls st/runs/measured-*-weak-default-* | head -n 1)
echo '{"define":' >"$f"
runs scale_redoes_broken 0 'broken' $scale --ranks=1,2 --mode=weak,strong --ablate=overlap-off --out=st
# another number of iterations is another point; the older one is named, not dropped
runs scale_other_point 0 'report' $scale --iterations=5 --ranks=1 --repeats=1 --no_bench --out=st
is scale_names_superseded grep -q 'left out, a later run has its place' st/report.md

# ---- the report alone
rm st/report.md st/points.csv
runs scale_report_again 0 'report: st/report.md' "$CORTADO" scale --report=st
is scale_report_is_back sh -c '[ $(grep -c "^\"Tiny\"" st/points.csv) = 8 ]'
runs scale_no_study 3 'not the folder of a study' "$CORTADO" scale --report=nowhere

# ---- a run that fails is listed, the others are done, the exit code says so
cat >launch <<'EOF2'
#!/bin/sh
n=$1; shift
[ "$n" != 2 ] || { echo "E1 no room for two"; exit 9; }
exec "$@"
EOF2
chmod +x launch
runs scale_failed_run 1 '1 runs failed' $scale --ranks=1,2 --repeats=1 --no_bench --launcher='./launch {ranks}' --out=bad
is scale_failure_listed grep -q 'failed: .*n1-r2.*: exit code 9: E1 no room for two' bad/report.md
is scale_failure_in_table grep -q '\*\*failed\*\*' bad/report.md
is scale_failure_in_csv sh -c 'grep -q "\"measured\",1,2,.*,0,1," bad/points.csv'
sed -i 's/^\[.*$//' launch
runs scale_wrong_ranks 1 'ran on 1 ranks instead of 2' $scale --ranks=1,2 --repeats=1 --no_bench --launcher='./launch {ranks}' --out=bad
sed -i "s#^exec.*#exec $JOB \$n \"\$@\"#" launch
runs scale_tries_again 0 '1 runs are there already, 1 to do' $scale --ranks=1,2 --repeats=1 --no_bench --launcher='./launch {ranks}' --out=bad
cat >slow <<'EOF2'
#!/bin/sh
sleep 60
EOF2
chmod +x slow
runs scale_time_limit 1 'took longer than 1 s' $scale --ranks=1 --repeats=1 --no_bench --limit=1 --launcher='./slow {ranks}' --out=slow.d
# stopped by a signal: what is finished stays, exit code 75
stop_it() { "$@" & sleep 3; kill -TERM $!; wait $!; }
stop_it $scale --ranks=1 --repeats=1 --no_bench --launcher='./slow {ranks}' --out=stopped.$$ >out 2>&1
is scale_stopped [ $? = 75 ]
is scale_stopped_says grep -q 'goes on from there' out
is scale_stopped_children sh -c "! pgrep -f '[s]low 1 .*stopped.$$' >/dev/null"

# adds_up POINTS.CSV ROWS [ELEMENTS]: in each of so many simulated rows computing and exposed are the
# step, and the bytes are those of the model. Ranks that are powers of two send 2 (p-1)/p of the
# gradient's bytes (by ring, by halving, by levels: all the same).
adds_up() {
    awk -F, -v rows="$2" -v elements="${3:-0}" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        { key = $1 $2 $3 $4 " " $at["ranks"] }
        $5 == "\"modelled\"" { bytes[key] = $at["bytes_sent"] }
        $5 == "\"simulated\"" {
            n++
            sent[key] = $at["bytes_sent"]
            if (off($at["compute_ms"] + $at["exposed_ms"], $at["step_ms"])) bad = told("step", key)
            p = $at["ranks"]
            if (elements > 0 && differ(sent[key], 2 * (p - 1) / p * 4 * elements)) bad = told("bytes", key)
        }
        function off(a, b) { return a / b > 1 + 1e-6 || a / b < 1 - 1e-6 }
        function differ(a, b) { return off(1 + a, 1 + b) && (a > b + 1 || a < b - 1) } # whole bytes
        function told(what, key) { print what " of " key; return 1 }
        END {
            for (key in sent) if (differ(sent[key], bytes[key])) bad = told("bytes, not those of the model,", key)
            exit bad || n != rows
        }' "$1"
}
for study in "$ROOT"/docs/studies/*/; do
    name=$(basename "$study")
    elements=$(sed -n 's/.*"learned": \([0-9]*\),.*/\1/p' "$study/study.json" | head -n 1)
    is "scale_example_$name" adds_up "$study/points.csv" "$(grep -c '"simulated"' "$study/points.csv")" "$elements"
done

# ---- on a described machine: modelled everywhere, simulated where the simulator is built
runs scale_profile 0 'images/s' "$CORTADO" time --model=tiny.prototxt --iterations=9 --json=tiny.json
on="$CORTADO scale --machine=taihulight --model=tiny.prototxt --profile=tiny.json --no_bench"
runs scale_modelled 0 'report' $on --nodes=1,2,...,16,40960 --kind=modelled --images_per_s=100 \
    --ablate=overlap-off,swcaffe,placement=cyclic,compression=bf16 --jitter_seed=3 --out=far
is scale_modelled_rows sh -c '[ $(grep -c "\"modelled\",40960,40960," far/points.csv) = 5 ]'
# without jitter one node is as fast as it was said to be, whatever the profile's steps were
runs scale_modelled_steady 0 'report' $on --nodes=1 --kind=modelled --images_per_s=100 --out=steady
is scale_modelled_speed sh -c 'grep "\"default\",\"modelled\",1,1," steady/points.csv | cut -d, -f18 |
    awk "{ exit !(\$1 > 99.9 && \$1 < 100.1) }"'
is scale_bound_at_one sh -c 'grep "\"default\",\"modelled\",1,1," far/points.csv | cut -d, -f30 | grep -qx 1'
is scale_bound_holds sh -c 'grep "\"modelled\"," far/points.csv | cut -d, -f20,30 |
    awk -F, "{ if (\$1 > \$2 * 1.000001) exit 1 } END { exit NR != 30 }"'
is scale_says_model_error grep -q 'the error of the .* modelled points is not known' far/report.md
# Sums in the network (5800 bytes of gradients, 64 nodes, 1 GB/s): by halving 12 latencies of 2 us and
# 2 x 5.7 us, 35.4 us. In the network 3 + 5.8 us, in pieces of 512 bytes 12 x 3 + 5.8.
cat >plain.prototxt <<'EOF2'
name: "adds" source: "a test"
level { name: "node" size: 1 latency_us: 1 bandwidth_gbs: 100 }
level { name: "machine" latency_us: 2 bandwidth_gbs: 1 }
EOF2
{ cat plain.prototxt; echo 'in_network { bandwidth_gbs: 1 latency_us: 3 }'; } >adds.prototxt
{ cat plain.prototxt; echo 'in_network { bandwidth_gbs: 1 latency_us: 3 max_bytes: 512 }'; } >pieces.prototxt
for m in plain adds pieces; do
    runs scale_in_network_$m 0 'report' "$CORTADO" scale --machine=$m.prototxt --model=tiny.prototxt --profile=tiny.json \
        --kind=modelled --nodes=64 --ablate=overlap-off --no_bench --out=net_$m
done
is scale_in_network_chosen grep -q '"overlap-off","modelled",64,.*"impi x1"' net_adds/points.csv
is scale_in_network_priced awk -F, '$4 == "\"overlap-off\"" { e = $23 } END { exit !(e > 0.00879 && e < 0.00881) }' net_adds/points.csv
is scale_in_network_dear sh -c '! grep -q impi net_pieces/points.csv && ! grep -q impi net_plain/points.csv'
is scale_in_network_said grep -q "MPI's sums in the network 1 GB/s, 3 us" net_adds/report.md
runs scale_in_network_simulated 2 'has in_network, and the simulator knows no sums in the network' "$CORTADO" scale \
    --machine=adds.prototxt --model=tiny.prototxt --profile=tiny.json --nodes=4 --out=no
# reading: 100 images/s with the net's batch; one file for all, or 32
runs scale_read 0 'report' $on --nodes=1,1024 --kind=modelled --images_per_s=100 --read=bytes=1e6,file=1 --ablate=read=files=32 --out=reading
is scale_read_bound sh -c 'awk -F, "/\"default\",\"modelled\",1024,/ { one = \$10 } /\"read=files=32\",\"modelled\",1024,/ { many = \$10 } END { exit !(many > 0 && one > 20 * many) }" reading/points.csv'
is scale_read_said grep -q 'reading of samples is \*\*modelled\*\*' reading/report.md
is scale_read_share grep -q 'reading % of the step' reading/report.md
runs scale_bad_read 2 'no bandwidth' $on --nodes=2 --read=bytes=5 --kind=modelled --out=no
is scale_modelled_only sh -c '! grep -q "images/s on 40960 ranks.*\*\*measured" far/report.md'
: "${CORTADO_SIM:=$(dirname "$(readlink -f "$CORTADO")")/../smpicc/cortado-sim}"
if [ -x "$CORTADO_SIM" ] && command -v smpirun >/dev/null; then
    export CORTADO_SIM
    runs scale_simulated 0 'report' $on --nodes=1,2,3,16 --images_per_s=100 --batch=64 --out=sim
    is scale_simulated_rows sh -c '[ $(grep -c "\"simulated\"" sim/points.csv) = 4 ] && [ $(grep -c "\"modelled\"" sim/points.csv) = 4 ]'
    is scale_model_error grep -q 'Error of the model over 3 points' sim/report.md
    is scale_simulated_adds_up adds_up sim/points.csv 4
    runs scale_simulated_jitter 0 'report' $on --nodes=1,3,8 --images_per_s=100 --batch=64 --jitter_seed=3 --ablate=overlap-off,overlap-backward --out=simj
    is scale_jitter_adds_up adds_up simj/points.csv 9
    # ZeRO: what is modelled is what is simulated, 1/10 apart at most, and the network has a part in it
    runs scale_shares 0 'report' "$CORTADO" scale --machine=plain.prototxt --model=tiny.prototxt --profile=tiny.json --no_bench \
        --nodes=2,4 --images_per_s=1e6 --batch=64 --set=comm.allreduce=rhd --set=comm.overlap=false \
        --ablate=set=memory.zero=1,set=memory.zero=2,set=memory.zero=3 --out=shares
    is scale_shares_adds_up adds_up shares/points.csv 8
    is scale_shares_modelled awk -F, '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        { key = $4 " " $at["ranks"] }
        $5 == "\"modelled\"" { model[key] = $at["step_ms"] }
        $5 == "\"simulated\"" { step[key] = $at["step_ms"]; if ($at["exposed_ms"] < 0.1 * $at["step_ms"]) bad = 1 }
        END {
            for (key in step) {
                n++
                if (model[key] > 1.1 * step[key] || model[key] < 0.9 * step[key]) bad = 1
                if (bad) print key, model[key], step[key]
            }
            exit bad || n != 8
        }' shares/points.csv
    before=$(cat sim/runs/* | cksum)
    runs scale_simulated_again 0 '4 runs are there already, 0 to do' $on --nodes=1,2,3,16 --images_per_s=100 --batch=64 --out=sim
    is scale_simulated_kept [ "$(cat sim/runs/* | cksum)" = "$before" ]
else
    skip scale_simulated "no simulator: make SIMGRID=1, and smpirun"
fi
export CORTADO_SIM="$work/none"
runs scale_no_simulator 3 'none' $on --nodes=1 --out=no
unset CORTADO_SIM
cp "$CORTADO" alone
runs scale_simulator_not_built 2 'make SIMGRID=1' ./alone scale --machine=taihulight --model=tiny.prototxt --profile=tiny.json --nodes=1 --out=no
runs scale_machine_too_small 2 'has 40960 nodes.*wants 40961' $on --nodes=40961 --out=no
runs scale_unknown_machine 2 'did you mean "taihulight"' "$CORTADO" scale --machine=taihuligth --model=tiny.prototxt --profile=tiny.json --nodes=2 --out=no
runs scale_folder_for_net 3 'a folder; expected a file' "$CORTADO" scale --machine=daint --model=. --profile=tiny.json --nodes=2 --kind=modelled --out=no_folder
is scale_leaves_no_folder test ! -e no_folder
runs scale_too_many_ranks 2 'at most 16777216 ranks' "$CORTADO" scale --machine=daint --model=tiny.prototxt --profile=tiny.json --nodes=2 --ranks_per_node=2147483647 --kind=modelled --out=no
runs scale_no_profile 2 'needs --profile' "$CORTADO" scale --machine=daint --model=tiny.prototxt --nodes=2 --out=no
sed 's/num_output: 10/num_output: 11/' tiny.prototxt >other.prototxt
runs scale_other_profile 2 'another net|hash' "$CORTADO" scale --machine=daint --model=other.prototxt --profile=tiny.json --nodes=2 --kind=modelled --out=no
runs scale_broken_profile 3 'launch' "$CORTADO" scale --machine=daint --model=tiny.prototxt --profile=launch --nodes=2 --kind=modelled --out=no
runs scale_bad_placement 2 'placement' $on --nodes=2 --placement=sideways --kind=modelled --out=no
runs scale_bad_speed 2 'above 0' $on --nodes=2 --images_per_s=0 --kind=modelled --out=no
runs scale_bad_kind 2 'did you mean "modelled"' $on --nodes=2 --kind=modeled --out=no
runs scale_ranks_on_machine 2 'say --nodes' $on --ranks=2 --out=no
runs scale_no_nodes 2 'needs --nodes' $on --out=no

# ---- nonsense
runs scale_nothing 2 'one of --solver' "$CORTADO" scale --ranks=1,2
runs scale_no_ranks 2 'ranks=1,2,4' $scale --out=no
runs scale_both 2 'not both' $scale --ranks=1 --nodes=1
runs scale_zero 2 'from 1 up' $scale --ranks=0,1
runs scale_descending 2 'ascending' $scale --ranks=4,2
runs scale_words 2 'from 1 up' $scale --ranks=1,two
runs scale_dots 2 'whole ratio' $scale --ranks=2,3,...,8
runs scale_bad_ablation 2 'did you mean "overlap-off"' $scale --ranks=1 --ablate=overlapoff
runs scale_bad_ablated_algorithm 2 '^.*--ablate=allreduce=rign: .*did you mean "ring"' $scale --ranks=1 --ablate=allreduce=rign --out=no
runs scale_bad_ablated_codec 2 '^.*--ablate=compression=topkk: .*did you mean "topk"' $scale --ranks=1 --ablate=hier,compression=topkk --out=no
runs scale_bad_ablated_field 2 '^.*--ablate=set=comm.bucket_m=3: .*did you mean "bucket_mb"' $scale --ranks=1 --ablate=set=comm.bucket_m=3 --out=no
runs scale_bad_sizes 2 'whole floats' "$CORTADO" scale --model=tiny.prototxt --ranks=1 --sizes=3 --out=no
runs scale_bad_mode 2 'did you mean "weak"' $scale --ranks=1 --mode=week
runs scale_placement 2 'launcher places' $scale --ranks=1 --ablate=placement=cyclic
runs scale_bad_net 2 'did you mean "lenet"' "$CORTADO" scale --net=lenett --ranks=1
runs scale_no_file 3 'nowhere.prototxt' "$CORTADO" scale --model=nowhere.prototxt --ranks=1
sed 's/num_output/num_outputs/' tiny.prototxt >wrong.prototxt
runs scale_bad_model 2 'did you mean "num_output"' "$CORTADO" scale --model=wrong.prototxt --ranks=1
runs scale_strong_too_small 2 'larger --global_batch' $scale --ranks=1,2,...,16 --mode=strong
runs scale_nodes_alone 2 'not in a SLURM allocation' $scale --nodes=1,2
runs scale_launcher_without 2 'has no \{ranks\}' $scale --ranks=1 --launcher='mpirun -np 2'
touch plain
runs scale_out_is_a_file 3 'plain' $scale --ranks=1 --out=plain/x
# what is refused leaves no folders, and takes none that was there
is scale_refused_leaves_none sh -c '! ls -d no scaling'
mkdir there
runs scale_refused_inside 2 'launcher places' $scale --ranks=1 --ablate=placement=cyclic --out=there/a/b
runs scale_refused_slashes 2 'launcher places' $scale --ranks=1 --ablate=placement=cyclic --out=there/a//./b/
is scale_refused_leaves_others sh -c '[ -d there ] && [ -z "$(ls there)" ]'
# ---- a point by a parallel file beside the same ranks without; exit codes where it is no point
echo 'ranks: 2 global_batch: 16 stage { first: "ip" last: "loss" rank: 0 rank: 1 tensor: 2 layer { name: "ip" split: OUTPUT } }' >two.plan
runs scale_parallel 0 'report: by/report.md' $scale --ranks=1,2 --repeats=1 --no_bench --parallel=two.plan --out=by
is scale_parallel_rows sh -c '[ $(grep -c "\"weak\",\"default\"" by/points.csv) = 2 ] && [ $(grep -c "\"weak\",\"parallel\"" by/points.csv) = 1 ]'
is scale_parallel_batch sh -c 'grep "\"parallel\"" by/points.csv | cut -d, -f7,9 | grep -qx "2,16"'
is scale_parallel_report grep -q '| parallel |' by/report.md
runs scale_parallel_other_ranks 4 'its 2 ranks are no point' $scale --ranks=1,4 --no_bench --parallel=two.plan --out=by4
runs scale_parallel_other_batch 2 'its global_batch is 16, but the point of 2 ranks has 8' $scale --ranks=1,2 --mode=strong --no_bench --parallel=two.plan --out=by2
runs scale_parallel_machine 2 'for measured studies' "$CORTADO" scale --machine=taihulight --model=tiny.prototxt --nodes=2 --parallel=two.plan
sed 's/"ip" last/"iq" last/' two.plan >wrong.plan
runs scale_parallel_wrong 2 'wrong.plan:1: .*names "iq"' $scale --ranks=1,2 --no_bench --parallel=wrong.plan --out=wrong
is scale_parallel_refused_leaves_none sh -c '! ls -d by2 by4 wrong scaling'
runs scale_help 0 'ablate' "$CORTADO" scale --help
finish
