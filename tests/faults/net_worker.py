#!/usr/bin/env python3
"""Computes nets by libcortado for forward.py, in a process of its own: one instruction set, one kind of memory.

Usage: tests/faults/net_worker.py JOBS

JOBS is a JSON file: `given` has files of inputs, `jobs` says which net or solver runs, on what, with how many threads. What a job finds goes
into the folder `to`: arrays one behind the other in NAME, and where they lie in NAME.json, or why it failed. `at` names the job that runs.
"""
import array
import ctypes
import json
import os
import sys

import job

LIBRARY = os.environ.get("CORTADO_LIBRARY", os.path.join(job.ROOT, "build", "mpicc", "lib", "libcortado.so"))


class Blob(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(ctypes.c_float)), ("diff", ctypes.POINTER(ctypes.c_float)), ("count", ctypes.c_int64),
                ("n_dim", ctypes.c_int), ("dim", ctypes.c_int64 * 8)]


class Shape(ctypes.Structure):
    _fields_ = [("input", ctypes.c_char_p), ("n_dim", ctypes.c_int), ("dim", ctypes.c_int64 * 8)]


class Wrong(Exception):
    pass


def library():
    lib = ctypes.CDLL(LIBRARY)
    for name in ("error", "net_layer_name", "net_output_name"):
        getattr(lib, "cortado_" + name).restype = ctypes.c_char_p
    for name in ("solver_net", "solver_test_net"):
        getattr(lib, "cortado_" + name).restype = ctypes.c_void_p
    lib.cortado_net_loss_weight.restype = ctypes.c_double
    return lib


class Worker:
    def __init__(self):
        self.lib = library()

    def call(self, name, *args):
        status = getattr(self.lib, "cortado_" + name)(*args)
        if status != 0:
            raise Wrong(f"{name}: status {status}: {(self.lib.cortado_error() or b'').decode(errors='replace')}")

    def write(self, net, given):
        for name, values in given.items():
            b = Blob()
            if self.lib.cortado_net_blob(ctypes.c_void_p(net), name.encode(), ctypes.byref(b)) != 0:
                if name == "label":
                    continue
                raise Wrong(f"no input {name}")
            if b.count != len(values):
                raise Wrong(f"input {name} has {b.count} numbers, not {len(values)}")
            ctypes.memmove(b.data, values.tobytes(), 4 * len(values))

    def blob(self, net, name):
        b = Blob()
        self.call("net_blob", ctypes.c_void_p(net), name.encode(), ctypes.byref(b))
        return array.array("f", ctypes.string_at(b.data, 4 * b.count)) if b.count else array.array("f")

    def outputs(self, net):
        i, names = 0, []
        while True:
            name = self.lib.cortado_net_output_name(ctypes.c_void_p(net), i)
            if name is None:
                return names
            names.append(name.decode())
            i += 1

    def reshape(self, net, shapes):
        structs = (Shape * len(shapes))()
        for s, (name, dims) in zip(structs, shapes.items()):
            s.input, s.n_dim = name.encode(), len(dims)
            for i, d in enumerate(dims):
                s.dim[i] = d
        kept = ctypes.c_void_p()
        self.call("net_reshape_inputs", ctypes.c_void_p(net), len(shapes), structs, ctypes.byref(kept))
        self.lib.cortado_kept_free(kept)

    def test(self, j, given):
        """A net for use: what each of its runs gives."""
        net, solver = ctypes.c_void_p(), ctypes.c_void_p()
        if "solver" in j:
            self.call("solver_open", j["solver"].encode(), 0, ctypes.byref(solver))
            self.call("solver_load", solver, j["weights"].encode())
            handle = self.lib.cortado_solver_test_net(solver, 0)
        else:
            self.call("net_open", j["net"].encode(), j["weights"].encode(), 1, ctypes.byref(net))
            handle = net.value
        found = {}
        for r in j["runs"]:
            if "shapes" in r:
                self.reshape(handle, r["shapes"])
            self.write(handle, given[r.get("given", "full")])
            for name in r.get("inner", ()):
                self.blob(handle, name)
            self.call("net_forward", ctypes.c_void_p(handle), None, None)
            for name in [*self.outputs(handle), *r.get("inner", ())]:
                found[f'{r["name"]}|{name}'] = self.blob(handle, name)
        if "solver" in j:
            self.lib.cortado_solver_close(solver)
        else:
            self.lib.cortado_net_close(net)
        return found

    def loss(self, net):
        each = [(self.lib.cortado_net_loss_weight(ctypes.c_void_p(net), name.encode()), name) for name in self.outputs(net)]
        return sum(weight * self.blob(net, name)[0] for weight, name in each if weight)

    def weights(self, net):
        found = {}
        for i in range(self.lib.cortado_net_layer_count(ctypes.c_void_p(net))):
            name = self.lib.cortado_net_layer_name(ctypes.c_void_p(net), i)
            for k in range(self.lib.cortado_net_weight_count(ctypes.c_void_p(net), i)):
                b = Blob()
                self.call("net_weight", ctypes.c_void_p(net), name, k, ctypes.byref(b))
                found[f"{name.decode()}/{k}"] = array.array("f", ctypes.string_at(b.data, 4 * b.count))
        return found

    def train(self, j, given):
        """Steps: the loss, and the weights."""
        solver = ctypes.c_void_p()
        self.call("solver_open", j["solver"].encode(), j.get("keep", 0), ctypes.byref(solver))
        if "weights" in j:
            self.call("solver_load", solver, j["weights"].encode())
        handle = self.lib.cortado_solver_net(solver)
        self.write(handle, given.get(j.get("given", "full"), {}))
        self.call("solver_step", solver, ctypes.c_int64(j.get("steps", 1)))
        found = {"loss": array.array("d", [self.loss(handle)]), **self.weights(handle)}
        if "save" in j:
            self.call("net_save", ctypes.c_void_p(handle), j["save"].encode())
        self.lib.cortado_solver_close(solver)
        return found


def work(path):
    """Jobs of a file; their results go into a folder, a file each."""
    with open(path, encoding="utf-8") as f:
        spec = json.load(f)
    given = {}
    for key, files in spec["given"].items():
        given[key] = {}
        for name, file in files.items():
            given[key][name] = array.array("f")
            with open(file, "rb") as f:
                given[key][name].frombytes(f.read())
    w = Worker()
    for j in spec["jobs"]:
        with open(os.path.join(spec["to"], "at"), "w", encoding="utf-8") as f:
            f.write(j["name"])
        w.call("set_threads", j["threads"])
        w.lib.cortado_set_seed(ctypes.c_uint32(5))
        try:
            found = w.train(j, given) if j["kind"] == "train" else w.test(j, given)
            index = {}
            with open(os.path.join(spec["to"], j["name"]), "wb") as f:
                for name, values in found.items():
                    index[name] = [f.tell(), len(values), values.typecode]
                    f.write(values.tobytes())
            error = ""
        except Wrong as e:
            index, error = {}, str(e)
        with open(os.path.join(spec["to"], j["name"] + ".json"), "w", encoding="utf-8") as f:
            json.dump({"error": error, "index": index}, f)


if __name__ == "__main__":
    work(sys.argv[1])
