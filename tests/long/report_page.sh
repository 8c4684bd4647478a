#!/bin/sh
# Pages of cortado report, rooflines and plots of a study in a real headless browser: Chromium or Chrome, or what
# CORTADO_BROWSER names.
. "$ROOT/tests/cli/lib.sh"
browser=${CORTADO_BROWSER:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} || {
    not_ok report_page "no browser: install chromium (Debian: apt-get install chromium), or name one in CORTADO_BROWSER"
    finish
}
. "$ROOT/tests/cli/made_runs.sh"
look() { # NAME FILE
    timeout -k 5 120 python3 "$ROOT/tests/long/report_page.py" "$browser" "$2" "$1" >asked 2>err
    rc=$?
    cat asked
    [ $rc = 0 ] || failed=1
    [ $rc = 0 ] || grep -q '^not ok' asked || not_ok "$1" "$(tail -n 5 err)"
}
runs report 0 '' "$CORTADO" report a/first b/first --to=two.html
look by_hand two.html
long=a/a_name_of_a_run_that_is_long_enough_to_need_a_row_of_its_own_in_the_key_of_a_chart
for i in 1 2 3 4; do cp -r a/first $long$i; done
runs report_long 0 '' "$CORTADO" report a/first $long* --to=long.html
look long_names long.html

# photographs, with pictures
python3 "$ROOT/tests/cli/photographs.py" photos 12
grep '^    cortado ' "$ROOT/docs/photographs.md" | head -n 6 >commands
n=0
while read -r verb rest; do
    n=$((n + 1))
    runs guide_$n 0 '' "$CORTADO" $rest
done <commands
look photographs page.html

# a roofline and a study's plots, one page of them
cat >tiny.prototxt <<'EOF2'
name: "Tiny"
layer { name: "in" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 8 dim: 1 dim: 12 dim: 12 } shape { dim: 8 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
EOF2
runs roofline 0 'images/s' "$CORTADO" time --model=tiny.prototxt --iterations=3 --roofline=roofline.svg --json=tiny.json
runs study 0 'report' "$CORTADO" scale --machine=taihulight --model=tiny.prototxt --profile=tiny.json --no_bench \
    --nodes=1,2,...,1024 --kind=modelled --images_per_s=100 --ablate=overlap-off,swcaffe,compression=bf16 --jitter_seed=3 --out=study
{
    echo '<!DOCTYPE html><meta charset="utf-8"><title>Plots</title><meta name="viewport" content="width=device-width"><style>body{background:#fff}'
    echo '@media (prefers-color-scheme:dark){body{background:#16181c}}</style>'
    cat roofline.svg study/plots/*.svg
} >plots.html
look plots plots.html
finish
