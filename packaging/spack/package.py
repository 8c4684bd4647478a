# Spack's recipe: copy it to a repository of your own as packages/cortado/package.py.
from spack.package import *


class Cortado(MakefilePackage, CudaPackage):
    """Deep networks on CPU and GPU nodes, in C on MPI: training and serving the nets of Caffe, and
    transformers, with collectives that know the topology, and compressed gradients."""

    # A release's tarball is made by `make dist`; until there is one on a server:
    # spack install cortado@0.1.0, with the file in a mirror (spack mirror create)
    url = "file:///cortado-0.1.0.tar.gz"
    license("BSD-2-Clause")

    version("0.1.0")

    variant("hwloc", default=True, description="Topology of nodes by hwloc")
    variant("lmdb", default=True, description="Data sets of Caffe in LMDB")
    variant("images", default=True, description="JPEG, PNG, WebP and TIFF files")
    variant("serve", default=True, description="The HTTP server")
    variant("simgrid", default=False, description="The simulator")

    depends_on("c", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3:", type=("build", "run"))
    depends_on("mpi@3:")
    depends_on("openblas threads=openmp")
    depends_on("hdf5~mpi")
    depends_on("protobuf-c")
    depends_on("jansson")
    depends_on("zlib-api")
    depends_on("hwloc", when="+hwloc")
    depends_on("lmdb", when="+lmdb")
    depends_on("libjpeg-turbo", when="+images")
    depends_on("libpng", when="+images")
    depends_on("libwebp", when="+images")
    depends_on("libtiff@4.5:", when="+images")
    depends_on("libmicrohttpd", when="+serve")
    depends_on("simgrid+smpi", when="+simgrid", type=("build", "link", "run"))

    def flags(self):
        spec = self.spec
        has = {"HWLOC": "+hwloc", "LMDB": "+lmdb", "TURBOJPEG": "+images", "PNG": "+images", "WEBP": "+images", "TIFF": "+images",
               "MICROHTTPD": "+serve"}
        flags = ["MPICC=" + spec["mpi"].mpicc, "prefix=" + self.prefix]
        flags += ["HAVE_%s=%d" % (name, spec.satisfies(variant)) for name, variant in has.items()]
        if spec.satisfies("+cuda"):
            flags += ["CUDA=1", "CUDA_HOME=" + spec["cuda"].prefix, "CUDA_ARCH=" + " ".join(spec.variants["cuda_arch"].value)]
        return flags

    def build(self, spec, prefix):
        make("all", "library", *self.flags())
        if spec.satisfies("+simgrid"):
            make("all", "SIMGRID=1")

    def install(self, spec, prefix):
        make("install", *self.flags())
        if spec.satisfies("+simgrid"):
            install("build/smpicc/cortado-sim", prefix.bin)
