#!/bin/sh
# Copies what scripts/gpu/test.sh and bench.sh need into one folder, with the nets and the libraries that a GPU
# node may lack (not CUDA's, not the C library's), and packs it: for nodes where nothing can be built.
#   scripts/gpu/bundle.sh BUILD FOLDER       makes FOLDER and FOLDER.tar.xz
set -eu
cd "$(dirname "$0")/../.."
from=$1 to=$2
rm -rf "$to" "$to.tar.xz"
mkdir -p "$to/lib" "$to/tests/unit" "$to/tests/bench"
cp "$from/cortado" "$to/"
# the programs that test.sh names, and its list of layers' tests
for t in $(sed -n -e 's/^layers=.*:-\(.*\)}$/\1/p' -e 's/^.*tests\/unit\/test_\([a-z_]*\)".*$/\1/p' scripts/gpu/test.sh); do
    cp "$from/tests/unit/test_$t" "$to/tests/unit/"
done
cp "$from/tests/bench/bench_gpu" "$from/tests/bench/bench_gpu_cells" "$from/tests/bench/bench_gpu_products" "$to/tests/bench/"
strip "$to/cortado" "$to"/tests/*/*
# nets, which a checkout where nothing is built does not have
for m in models/*/*.prototxt; do
    mkdir -p "$to/${m%/*}"
    cp "$m" "$to/$m"
done
# what a program loads, without CUDA's own and the C library's
needs() {
    ldd "$@" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u |
        grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|ld-linux[^/]*|libcuda[^/]*|libcu(blas|dnn|rand|sparse|solver|fft)[^/]*|libnv[^/]*|libnccl[^/]*)\.so'
}
components=$(ls -d /usr/lib/*/openmpi/lib/openmpi3 2>/dev/null | head -1)
if [ -n "$components" ] && ldd "$from/cortado" | grep -q libmpi.so.40; then
    mkdir "$to/lib/openmpi"
    for c in "$components"/mca_*.so; do # of a job of one rank
        case ${c##*/} in
        mca_ess_singleton.so | mca_pml_ob1.so | mca_btl_self.so | mca_bml_r2.so | mca_coll_basic.so | mca_coll_self.so | \
            mca_coll_libnbc.so | mca_osc_*.so | mca_allocator_*.so | mca_mpool_*.so | mca_rcache_*.so | mca_schizo_*.so | mca_state_*.so | \
            mca_errmgr_*.so | mca_routed_*.so | mca_rml_*.so | mca_oob_*.so | mca_pmix_isolated.so | mca_pmix_ext3x.so | mca_grpcomm_*.so | \
            mca_dfs_*.so | mca_filem_*.so | mca_iof_*.so | mca_shmem_*.so | mca_io_*.so | mca_fs_*.so | mca_fbtl_*.so | mca_fcoll_*.so | \
            mca_sharedfp_*.so | mca_op_*.so | mca_topo_*.so | mca_vprotocol_*.so | mca_crs_*.so | mca_compress_*.so | mca_reachable_*.so)
            cp "$c" "$to/lib/openmpi/"
            ;;
        esac
    done
fi
needs "$to/cortado" "$to/tests/unit/test_cuda" $(ls "$to"/lib/openmpi/*.so 2>/dev/null) | while read -r l; do cp -L "$l" "$to/lib/"; done
# programs are much alike: a window that is larger than one finds in it what the others have
XZ_OPT=-9 tar cJf "$to.tar.xz" -C "$(dirname "$to")" "$(basename "$to")"
du -sh "$to" "$to.tar.xz"
