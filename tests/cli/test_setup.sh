# What a newcomer meets: `make` on a machine that lacks something says in one line what, and who
# installs it; nothing is compiled.
. "$ROOT/tests/cli/lib.sh"

# tools_without NAME: a folder of links to all programs on the PATH but that one
tools_without() {
    rm -rf tools
    mkdir tools
    echo "$PATH" | tr ':' '\n' | while read -r folder; do
        find -L "$folder" -maxdepth 1 -type f -perm -u+x ! -name "$1" -exec ln -s -t tools {} + 2>/dev/null
    done
    [ -e tools/make ] && [ ! -e tools/"$1" ]
}
lacks() { # NAME WHAT VARIABLE=VALUE...
    name=$1 what=$2
    shift 2
    runs "$name" 2 "missing for the build: $what\\. scripts/setup.sh installs it" \
        env MAKEFLAGS= MPICC=mpicc "$@" make --no-print-directory -C "$ROOT" B="$work/none"
    is "${name}_in_one_line" [ "$(grep -Evc '^make(\[[0-9]+\])?: [*]{3}' out)" = 1 ]
}

if ! command -v make >/dev/null || ! MPICC=mpicc "$ROOT/scripts/setup.sh" --check >out 2>&1; then
    skip setup "what a build needs is not all here"
    finish
fi
for tool in protoc-c pkg-config mpicc python3; do
    if tools_without $tool; then lacks "no_$tool" "command $tool" PATH="$work/tools"; else skip "no_$tool" "links"; fi
done
lacks no_libraries 'library openblas, library hdf5, .*library zlib' PKG_CONFIG_LIBDIR="$work" PKG_CONFIG_PATH=
finish
