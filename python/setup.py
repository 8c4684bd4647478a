"""The wheel of `make wheel`, which puts the library and its version beside this file. It has no module of C of its own, so it fits
any Python 3, on this machine's kind."""
from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    from wheel.bdist_wheel import bdist_wheel


class AnyPython(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


with open("VERSION") as f:
    version = f.read().strip()
setup(name="cortado", version=version, description="Nets and solvers of Cortado, as NumPy arrays", python_requires=">=3.8",
      install_requires=["numpy"], extras_require={"caffe": ["protobuf"], "snapshots": ["h5py"]},
      packages=["cortado", "cortado.caffe", "cortado.caffe.proto"],
      package_data={"cortado": ["libcortado.so.*", "cortado.proto", "py.typed"]},
      cmdclass={"bdist_wheel": AnyPython}, distclass=WithLibrary)
