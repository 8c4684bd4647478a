#!/bin/sh
# Makes sure that what the build needs is there. Quick when it is. On Debian and Ubuntu it installs
# the packages (as root or with sudo); elsewhere it lists what to load and fails.
#   scripts/setup.sh            needs of `make`, `make demo` and `make test`
#   scripts/setup.sh --test     and of tests that skip without: Slurm, SimGrid, onnxruntime …
#   scripts/setup.sh --check    of `make` alone: one line says what is missing, nothing is installed
#   scripts/setup.sh --check cmocka    and of test programs
set -eu

case ${MPICC:-mpicc} in
*mpich*) mpi='mpich libmpich-dev' ;;
*) mpi='openmpi-bin libopenmpi-dev' ;;
esac
packages="gcc make pkg-config python3 $mpi libopenblas-openmp-dev libhdf5-dev
protobuf-c-compiler libprotobuf-c-dev zlib1g-dev libjansson-dev libcmocka-dev liblmdb-dev libturbojpeg0-dev
libpng-dev libwebp-dev libtiff-dev libhwloc-dev libmicrohttpd-dev curl"
test_packages="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libsimgrid-dev python3-venv locales mandoc zsh environment-modules"
python_packages="numpy setuptools wheel h5py onnx onnxruntime safetensors tokenizers tiktoken gguf openai tritonclient[http] tensorboard clang-format==14.0.6" # of PyPI: those of scripts/test_venv.sh

libraries="openblas hdf5 libprotobuf-c jansson zlib"
[ "${MPICC:-mpicc}" != smpicc ] || libraries="libprotobuf-c jansson" # the simulator alone

# One line each thing that is missing: missing_tools TOOL..., missing_libraries NAME...
missing_tools() {
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || echo "command $tool"
    done
}
missing_libraries() {
    command -v pkg-config >/dev/null 2>&1 || return 0
    ! pkg-config --exists "$@" 2>/dev/null || return 0
    for lib in "$@"; do
        pkg-config --exists "$lib" 2>/dev/null || echo "library $lib"
    done
}
missing() {
    missing_tools gcc make pkg-config protoc-c python3 "${MPICC:-mpicc}" "${MPIRUN:-mpirun}"
    # python3-minimal is enough for make, not for the tests
    ! command -v python3 >/dev/null 2>&1 || python3 -c 'import json' 2>/dev/null || echo "Python's library"
    missing_libraries $libraries cmocka
}

# What tests want beyond that. Debian has daemons where only root looks.
missing_for_tests() {
    PATH=$PATH:/usr/sbin missing_tools slurmctld slurmd munged sbatch srun smpicc smpirun python3 localedef mandoc zsh modulecmd curl
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo "Python's venv"
    has_locale || [ -e /usr/share/i18n/locales/de_DE ] || echo "locale de_DE"
}
# one that writes decimals with a comma
has_locale() { locale -a 2>/dev/null | grep -qi 'de_DE.utf-*8'; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
finish_tests() {
    "$(dirname "$0")/test_venv.sh" $python_packages >/dev/null
    has_locale || as_root localedef -i de_DE -f UTF-8 de_DE.UTF-8
}

with_tests=
if [ "${1:-}" = --test ]; then
    with_tests=1
    packages="$packages $test_packages"
fi

if [ "${1:-}" = --check ]; then
    shift
    lack=$(missing_tools pkg-config protoc-c python3 "${MPICC:-mpicc}" && missing_libraries $libraries "$@")
    [ -n "$lack" ] || exit 0
    echo "make: missing for the build:" $(echo "$lack" | sed '$!s/$/,/')". scripts/setup.sh" \
        "installs it on Debian and Ubuntu, and lists elsewhere what to load; make demo runs it" >&2
    exit 1
fi

# Optional ones, which the demo and most tests want: installed where that is possible.
missing_optional() {
    for lib in lmdb libturbojpeg libpng libwebp libtiff-4 hwloc libmicrohttpd; do
        pkg-config --exists "$lib" 2>/dev/null || echo "library $lib"
    done
}

can_install() { command -v apt-get >/dev/null 2>&1 && { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null 2>&1; }; }

everything_missing() {
    missing
    [ -z "$with_tests" ] || missing_for_tests
}

lack=$(everything_missing)
[ -n "$lack" ] || ! can_install || lack=$(missing_optional)
if [ -z "$lack" ]; then
    [ -z "$with_tests" ] || finish_tests
    exit 0
fi

echo "Missing for the build${with_tests:+ and the tests}:" $(echo "$lack" | sed 's/$/,/') >&2
if command -v apt-get >/dev/null 2>&1; then
    sudo=
    if [ "$(id -u)" != 0 ]; then
        sudo=$(command -v sudo || true)
        if [ -z "$sudo" ]; then
            echo "Neither root nor sudo. Have these packages installed:" $packages >&2
            exit 1
        fi
    fi
    echo "Installing:" $packages >&2
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages
    lack=$(everything_missing)
    if [ -n "$lack" ]; then
        echo "Still missing:" $lack >&2
        exit 1
    fi
    [ -z "$with_tests" ] || finish_tests
    exit 0
fi

cat >&2 <<'EOF'
Load or install, then run make again:
  a C11 compiler with OpenMP   module load gcc
  MPI 3 (mpicc, mpirun)        module load openmpi            dnf: openmpi-devel
  OpenBLAS                     module load openblas           dnf: openblas-devel
  HDF5, serial is enough       module load hdf5               dnf: hdf5-devel
  protobuf-c and protoc-c      spack load protobuf-c          dnf: protobuf-c-devel protobuf-c-compiler
  jansson                      spack load jansson             dnf: jansson-devel
  zlib, pkg-config, cmocka     spack load cmocka              dnf: zlib-devel pkgconf libcmocka-devel
  Python 3.6 or later          module load python             dnf: python3
optional: lmdb, libjpeg-turbo (libturbojpeg), libpng, libwebp, libtiff 4.5, hwloc, libmicrohttpd
with --test: Slurm and munge, SimGrid (smpicc), Python 3 with venv, mandoc, zsh, environment-modules
pkg-config must find them: PKG_CONFIG_PATH holds the folders of their .pc files.
EOF
exit 1
