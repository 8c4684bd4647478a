# The installation: what its pages name is there, it works without the sources, it goes away again; and
# which version a program says it has.
. "$ROOT/tests/cli/lib.sh"
install="$ROOT/scripts/install.sh"
runs installs 0 'cortado is in ' "$install" install "$CORTADO" /opt/cortado "$work/root"
home=$work/root/opt/cortado share=$work/root/opt/cortado/share/cortado
is program test -x "$home/bin/cortado"

# built with hardening, unless somebody left it out: code anywhere in memory, tables read-only from the start, canaries
if [ "${HARDEN:-1}" = 0 ] || "$CORTADO" info --limits=false | grep -q 'fsanitize'; then
    skip hardened "HARDEN=0, or sanitizers, which have their own checks"
else
    readelf -hdlW "$CORTADO" >elf
    readelf -sW "$CORTADO" | grep ' UND ' >needs
    is code_lies_anywhere grep -Eq 'Type: +DYN' elf
    is tables_are_read_only grep -q GNU_RELRO elf
    is all_is_bound_at_once grep -Eq 'BIND_NOW|Flags:.*NOW' elf
    is no_code_on_the_stack sh -c 'grep GNU_STACK elf | grep -q " RW "'
    is canaries grep -q '__stack_chk_fail' needs
    is checked_lengths grep -q '_chk@' needs
fi

# every path of a file of the sources that an installed page names: in code, in links, in sentences
(cd "$share" && find . -name '*.md' -exec grep -ohE '[A-Za-z0-9_][A-Za-z0-9_./-]*/[A-Za-z0-9_.-]*[A-Za-z0-9_]' {} + | sort -u) >paths
n=0 missing=
while read -r path; do
    [ -f "$ROOT/$path" ] || continue
    case $path in build/*) continue ;; esac
    n=$((n + 1))
    [ -f "$share/$path" ] || missing="$missing $path"
done <paths
is names_many_files test $n -gt 150
is every_named_file_is_there test -z "$missing"
[ -z "$missing" ] || echo "    missing:$missing"
# links between the pages
if python3 -c '' 2>/dev/null; then
    runs links_lead_somewhere 0 '[0-9]+ links' python3 "$ROOT/scripts/check_links.py" "$share"
else
    skip links_lead_somewhere "no Python"
fi
for folder in scripts/nets scripts/slurm scripts/gpu tests/bench docs/results/convergence docs/studies/alexnet_taihulight_fitted; do
    is "whole_$folder" sh -c 'test -d "$0/$2" && test -d "$1/$2" && test "$(cd "$0/$2" && find . -type f ! -name "*.pyc" | sort)" = "$(cd "$1/$2" && find . -type f ! -name "*.pyc" | sort)"' \
        "$ROOT" "$share" "$folder"
done
is scripts_run test -x "$share/scripts/demo.sh" -a -x "$share/scripts/setup.sh"

sim=$(dirname "$CORTADO")/../smpicc/cortado-sim
if [ -x "$sim" ]; then
    is simulator_is_there test -x "$home/libexec/cortado/cortado-sim"
else
    skip simulator "make SIMGRID=1 was not run"
fi

# the manual, and completion in shells: tests/cli/test_manual.sh looks into them
verbs=$("$CORTADO" --help | sed -n 's/^  cortado \([a-z_]*\) .*/\1/p')
missing=
for verb in $verbs; do [ -s "$home/share/man/man1/cortado-$verb.1" ] || missing="$missing $verb"; done
is every_verb_has_a_page test -z "$missing" -a -s "$home/share/man/man1/cortado.1"
is completes_in_bash grep -q '^complete -F' "$home/share/bash-completion/completions/cortado"
is completes_in_zsh grep -q '^#compdef cortado' "$home/share/zsh/site-functions/_cortado"

# the module file, by the program that reads it
modules=$home/share/modulefiles
is module_is_there test -s "$modules/cortado/$(cat "$ROOT/VERSION")"
modulecmd=$(command -v modulecmd)
if [ -n "$modulecmd" ]; then
    MODULEPATH=$modules "$modulecmd" sh load cortado >loaded 2>&1
    is module_sets_the_path grep -qE "^PATH=/opt/cortado/bin(:|;)" loaded
    is module_sets_the_manual grep -qE "^MANPATH=/opt/cortado/share/man(:|;)" loaded
else
    skip module "no environment-modules"
fi

# the demo of the installation, from anywhere
runs demo_of_it 0 'Kept in .*/cortado-demo: curves.html' env ITERATIONS=20 PATH="$home/bin:$PATH" CORTADO= MPIRUN="$MPIRUN" MPIRUN_FLAGS="$MPIRUN_FLAGS" \
    "$share/scripts/demo.sh"

# installed anew: files that are no more ours go; what others put there stays
echo /opt/cortado/share/cortado/docs/old.md >>"$share/manifest"
echo old >"$share/docs/old.md"
echo mine >"$share/docs/mine.md"
runs installs_anew 0 'cortado is in ' "$install" install "$CORTADO" /opt/cortado "$work/root"
is old_file_is_gone test ! -e "$share/docs/old.md"
is other_file_stays test -e "$share/docs/mine.md"
runs uninstalls 0 'cortado is gone from' "$install" uninstall /opt/cortado "$work/root"
is only_the_other_is_left test "$(find "$work/root" -type f)" = "$share/docs/mine.md"
rm "$share/docs/mine.md"
is no_folder_is_left test -z "$(find "$work/root/opt/cortado" -mindepth 1 ! -path '*/share' ! -path '*/share/cortado' ! -path '*/share/cortado/docs')"
runs nothing_to_uninstall 2 'manifest is not there: nothing was installed' "$install" uninstall /opt/cortado "$work/root"
runs prefix_is_absolute 2 'PREFIX=here is not a path from /' "$install" install "$CORTADO" here
is nothing_is_left test -z "$(find "$work/root" -type f)"

# folders of one's own, stripped
folders="bindir=/usr/bin libdir=/usr/lib64 includedir=/usr/include/x mandir=/usr/man datadir=/var/data"
runs installs_elsewhere 0 'cortado is in .*/usr/bin' env $folders STRIP=strip "$install" install "$CORTADO" /usr "$work/strange"
there() { test -e "$work/strange$1"; }
is program_is_elsewhere there /usr/bin/cortado
is page_is_elsewhere there /usr/man/man1/cortado-train.1
is model_is_elsewhere there /var/data/cortado/models/lenet/train_val.prototxt
is nothing_else_is_there test -z "$(cd "$work/strange" && find . -type f ! -path './usr/bin/cortado' ! -path './usr/lib64/*' ! -path './usr/libexec/*' ! -path './usr/include/x/*' ! -path './usr/man/*' ! -path './var/data/*')"
is stripped sh -c 'nm "$0" 2>&1 | grep -q "no symbols"' "$work/strange/usr/bin/cortado"
runs stripped_runs 0 "$(cat "$ROOT/VERSION")" "$work/strange/usr/bin/cortado" --version
runs uninstalls_elsewhere 0 'cortado is gone' env $folders "$install" uninstall /usr "$work/strange"
is nothing_is_left_elsewhere test -z "$(find "$work/strange" -type f)"
runs folder_is_absolute 2 'install: lib is not a path from /' env libdir=lib "$install" install "$CORTADO" /usr "$work/strange"

# files that say a version all say that of VERSION
version=$(cat "$ROOT/VERSION")
says() { is "$1_has_the_version" grep -qxF -- "$3" "$ROOT/$2"; }
says citation CITATION.cff "version: $version"
says debian packaging/debian/changelog "cortado ($version) unstable; urgency=medium"
says easybuild "packaging/easybuild/Cortado-$version-foss-2023a.eb" "version = '$version'"
says spack packaging/spack/package.py "    version(\"$version\")"
is changelog_has_the_version grep -q "^## $version, " "$ROOT/CHANGELOG.md"

# the version: of a tarball VERSION alone, also inside the checkout of something else
if git --version >/dev/null 2>&1; then
    version() { make -C "$1" --no-print-directory -pn 2>/dev/null | sed -n 's/^VERSION := //p'; }
    export GIT_CONFIG_GLOBAL=/dev/null GIT_CEILING_DIRECTORIES="$work"
    commit() { git -C "$1" add -A && git -C "$1" -c user.name=t -c user.email=t@t commit -qm t; }
    mkdir -p foreign/cortado
    cp "$ROOT/Makefile" "$ROOT/VERSION" foreign/cortado
    cp -r "$ROOT/scripts" foreign/cortado
    mkdir foreign/cortado/tests foreign/cortado/framework foreign/cortado/layers foreign/cortado/comm foreign/cortado/topology
    want=$(cat "$ROOT/VERSION")
    is version_of_a_tarball test "$(version foreign/cortado)" = "$want"
    git -C foreign init -q
    commit foreign
    is version_in_a_foreign_tree test "$(version foreign/cortado)" = "$want"
    git -C foreign/cortado init -q
    commit foreign/cortado
    hash=$(git -C foreign/cortado rev-parse --short HEAD)
    is version_of_a_checkout test "$(version foreign/cortado)" = "$want-g$hash"
    ln -s foreign/cortado link
    is version_through_a_link test "$(version link)" = "$want-g$hash"
    # the tarball: twice the same bytes, at whatever time, and a tree that make reads
    release=$want dist="make -C foreign/cortado --no-print-directory dist"
    runs dist_says_its_file 0 "dist/cortado-$release.tar.gz" $dist
    cp "foreign/cortado/dist/cortado-$release.tar.gz" first.tar.gz
    touch foreign/cortado/VERSION
    runs dist_again 0 "" env TZ=Asia/Tokyo make -C foreign/cortado --no-print-directory dist
    is dist_is_reproducible cmp first.tar.gz "foreign/cortado/dist/cortado-$release.tar.gz"
    mkdir unpacked
    tar -xzf first.tar.gz -C unpacked
    is version_of_dist test "$(version "unpacked/cortado-$release")" = "$release"
    echo changed >>foreign/cortado/VERSION
    runs dist_of_changes 2 'dist: the checkout has changes that no commit has' $dist
    runs dist_of_a_tarball 2 'dist: this is no checkout of git' make -C "unpacked/cortado-$release" --no-print-directory dist
else
    skip version "no git"
fi
finish
