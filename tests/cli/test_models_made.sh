# The nets under models/ that scripts/make_models.py describes: git keeps none of them, make writes
# them in a fresh clone, once, and again where one is gone or the script changed.
# long: make reads the Makefile many times
. "$ROOT/tests/cli/lib.sh"
if [ "$(git -C "$ROOT" rev-parse --show-toplevel 2>/dev/null)" != "$(cd "$ROOT" && pwd -P)" ]; then
    skip models_made "needs a git checkout"
    finish
fi
# what a clone would hold, changes that are not committed included
git -C "$ROOT" ls-files -z --cached --others --exclude-standard >files
mkdir clone
(cd "$ROOT" && tar cf - --null --ignore-failed-read -T "$work/files" 2>/dev/null) | tar xf - -C clone
cd clone || exit 1
git init -q . && git add -A

echo out >>.git/info/exclude
make_here="env -u MAKELEVEL MAKEFLAGS= make --no-print-directory"
nets() { find models -name '*.prototxt' -exec sha256sum {} + | sort -k 2; }
unchanged() { nets | cmp -s - "$work/nets"; } # and nothing but nets is there
nothing_else() { [ -z "$(find models -type f ! -name README.md ! -name '*.prototxt' ! -name .made)" ]; }
names=$(sed -n 's/^| \[\([a-z0-9_]*\)\](.*/\1/p' models/README.md)

is git_keeps_none [ "$(find models -name '*.prototxt' -exec grep -l '^# Made by' {} +)" = "" ]
is index_has_all_folders [ "$(echo "$names" | wc -l)" = "$(find models -mindepth 1 -maxdepth 1 -type d | wc -l)" ]
# each goal whose recipes read nets makes them first, and once
for goal in all test-unit "-j8 all install test-cli test-unit"; do
    # shellcheck disable=SC2086 # goals are words
    $make_here -n $goal >../goal 2>&1
    is "made_once_by_$(echo "$goal" | tr ' ' '_')" [ "$(grep -c 'make_models.py --nets' ../goal)" = 1 ]
done

runs makes 0 '' $make_here models
for name in $names; do
    is "has_$name" [ -s "models/$name/train_val.prototxt" -a -s "models/$name/deploy.prototxt" -a -s "models/$name/solver.prototxt" ]
done
is git_status_is_clean [ "$(git status --porcelain | grep -v '^A ')" = "" ]
is kept_nets_are_not_ignored [ -z "$(git ls-files --cached --ignored --exclude-standard)" ]
nets >"$work/nets"

touch ../marker
runs again 0 '' $make_here models
is not_made_again [ -z "$(find models -newer ../marker)" ]
rm models/resnet50/deploy.prototxt
runs one_gone 0 '' $make_here models
is one_gone_is_back unchanged
is others_keep_their_time [ "$(find models -name '*.prototxt' -newer ../marker)" = models/resnet50/deploy.prototxt ]
runs clean 0 '' $make_here clean
is clean_keeps_nets unchanged

# a script that breaks down, and a disk that is full: files are whole or as they were
cp scripts/nets/words.py ../words.py
echo 'raise SystemExit("broken")' >>scripts/nets/words.py
runs broken_script 2 broken $make_here models
is broken_script_changes_nothing unchanged
cp ../words.py scripts/nets/words.py
rm -r models/alexnet/*.prototxt models/vgg19/*.prototxt
runs full_disk 2 '^make_models.py: .*: File too large' sh -c "ulimit -f 4; exec $make_here models"
is full_disk_leaves_no_part nothing_else
is full_disk_leaves_whole_files [ "$(nets | grep -vcxFf "$work/nets")" = 0 ]
runs room_again 0 '' $make_here models
is room_again_has_all unchanged

# what somebody changed by hand stays, until the script has another text for it
echo '# mine' >>models/vgg16/solver.prototxt
rm models/lstm_large/solver.prototxt
runs by_hand 0 '' $make_here models
is by_hand_stays grep -q '^# mine' models/vgg16/solver.prototxt
sed -i 's/^VGG = sgd(0.01,/VGG = sgd(0.02,/' scripts/nets/solvers.py
runs script_changed 0 'models/vgg16/solver.prototxt was changed by hand: now in solver.prototxt~' $make_here models
is script_changed_sets_aside grep -q '^# mine' models/vgg16/solver.prototxt~
is script_changed_is_followed grep -q '^base_lr: 0.02' models/vgg16/solver.prototxt
# a net that the script no longer has goes
sed -i 's/compact.squeezenet, //' scripts/make_models.py
runs net_removed 0 '' $make_here models
is net_removed_is_gone [ "$(ls models/squeezenet)" = README.md ]
runs distclean 0 '' $make_here distclean
is distclean_removes_them [ "$(find models -name '*.prototxt' -exec grep -l '^# Made by' {} +)" = "" -a ! -e models/.made ]
is distclean_keeps_those_by_hand [ -z "$(git ls-files --deleted)" ]
finish
