# Sourced by test.sh and bench.sh with b set: where a bundle brings libraries, they are taken first.
if [ -d "$b/lib" ]; then
    case $b in /*) top=$b ;; *) top=$PWD/$b ;; esac
    export LD_LIBRARY_PATH="$top/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    if [ -d "$top/lib/openmpi" ]; then # a job of one rank, without mpirun
        export OMPI_MCA_mca_base_component_path="$top/lib/openmpi" OMPI_MCA_ess_singleton_isolated=1
        export OMPI_MCA_btl=self OMPI_MCA_pml=ob1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
fi
# what CUDA's libraries are called where only Python's packages have them
for d in /usr/local/cuda/lib64 $(python3 -c 'import nvidia, glob; print(*glob.glob(list(nvidia.__path__)[0] + "/*/lib"))' 2>/dev/null); do
    [ -d "$d" ] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$d"
done
