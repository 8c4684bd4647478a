# Topologies from the command line: what is drawn, what a job uses, and what is refused.
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_TOPOLOGY 2>/dev/null

runs ready_machine 0 '160 supernodes +4\.00 us +12 GB/s +768 GB/s +4:1' "$CORTADO" info --topology=taihulight
runs ready_from_elsewhere 0 '1152 nodes, 288 blades, 18 chassis, 3 groups' env -C / "$CORTADO" info --topology=daint
runs drawn_spec 0 '48 ranks on 12 nodes, 6 switches, 2 groups' "$CORTADO" info '--topology=2g x 3sw x 2n x 4'
runs no_job 0 'one process, no job' "$CORTADO" info --topology
runs ready_unknown 2 'did you mean "taihulight"' "$CORTADO" info --topology=taihuligth
runs ready_bad_placement 2 'expected block, cyclic' "$CORTADO" info --topology=place:taihulight,1,ciclic
runs file_missing 3 'nothere.prototxt: No such file' "$CORTADO" info --topology=./nothere.prototxt

here=$(hostname)
cat >machine.prototxt <<EOF
name: "mine"
level { name: "node" size: 4 latency_us: 1 bandwidth_gbs: 6 }
level { name: "switch" latency_us: 2 bandwidth_gbs: 12 }
level { name: "machine" latency_us: 3 bandwidth_gbs: 12 }
switch { name: "leaf1" nodes: "n[1-3]" }
switch { name: "leaf2" nodes: "$here" }
EOF
sed "s/$here/elsewhere/" machine.prototxt >other.prototxt
sed 's/bandwidth_gbs: 12 }$/bandwith_gbs: 12 }/' machine.prototxt >typo.prototxt
sed 's/n\[1-3\]/n[1-3,]/' machine.prototxt >hole.prototxt
sed 's/"leaf2" nodes: "/&n2,/' machine.prototxt >twice.prototxt
sed 's/"node"/"nodes"/' machine.prototxt >nonode.prototxt
{ cat machine.prototxt; echo 'shared { gbs: 9 latency_us: -1 }'; } >shared.prototxt
{ cat machine.prototxt; echo 'in_network { bandwidth_gbs: 23.75 latency_us: 2.83 max_bytes: 4096 }'; } >adds.prototxt
sed 's/max_bytes: 4096/max_bytes: -8/' adds.prototxt >adds_size.prototxt
sed 's/latency_us: 2.83//' adds.prototxt >adds_latency.prototxt
sed 's/bandwidth_gbs: 23.75/bandwidth: 23.75/' adds.prototxt >adds_typo.prototxt
printf 'SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=%s\nSwitchName=top Switches=s[1-2]\n' "$here" >topology.conf
runs file 0 'switch leaf1' "$CORTADO" info --topology=machine.prototxt
runs file_typo 2 'typo.prototxt:3:[0-9]+: .*"bandwith_gbs"; did you mean "bandwidth_gbs"' "$CORTADO" info --topology=typo.prototxt
runs file_twice 2 'twice.prototxt:6: node "n2" stands in two places' "$CORTADO" info --topology=twice.prototxt
runs file_no_node 2 'nonode.prototxt:2: .*is "nodes" meant' "$CORTADO" info --topology=nonode.prototxt
runs file_shared 2 'shared.prototxt:7: shared: latency_us is -1' "$CORTADO" info --topology=shared.prototxt
runs file_in_network 0 "^MPI's sums in the network: 2.83 us, 23.75 GB/s, in pieces of 4096 bytes" "$CORTADO" info --topology=adds.prototxt
runs spec_in_network 0 "^MPI's sums in the network: 2.83 us" "$CORTADO" info '--topology=2sw x 2n x 1@adds.prototxt'
runs file_in_network_size 2 'adds_size.prototxt:7: in_network: max_bytes is -8; it must be 0 or a multiple of 8' "$CORTADO" info --topology=adds_size.prototxt
runs file_in_network_latency 2 'adds_latency.prototxt:7: in_network: latency_us must be given' "$CORTADO" info --topology=adds_latency.prototxt
runs file_in_network_typo 2 'adds_typo.prototxt:7:[0-9]+: .*"bandwidth"; did you mean "bandwidth_gbs"' "$CORTADO" info --topology=adds_typo.prototxt
runs file_hole 2 'hole.prototxt:5: node list "n\[1-3,\]": a number is missing' "$CORTADO" info --topology=hole.prototxt

# nodes of several classes
runs ready_classes 0 '^  3 nodes 0-2 \(p3\), 4 each: ranks 0-11' "$CORTADO" info --topology=p3_g4
is classes_listed grep -q '^node class g4: nodes 3, speed 0.72, 192 GiB, inside 6.25 GB/s, into the network 6.25 GB/s' out
{ cat machine.prototxt; echo "node_class { name: \"old\" nodes: \"n[1-2],$here\" inject_gbs: 3 }"; echo 'node_class { name: "new" nodes: "n3" speed: 2 }'; } >classes.prototxt
sed 's/"n3"/"n[3-4]"/' classes.prototxt >class_unknown.prototxt
sed 's/"n3"/"n[2-3]"/' classes.prototxt >class_twice.prototxt
sed 's/n\[1-2\]/n1/' classes.prototxt >class_missing.prototxt
sed 's/speed/sped/' classes.prototxt >class_typo.prototxt
sed 's/speed: 2/speed: 0/' classes.prototxt >class_speed.prototxt
runs class_named 0 '^    2 nodes n\[1-2\] \(old\)' "$CORTADO" info --topology=classes.prototxt
runs class_unknown 2 'class_unknown.prototxt:8: node_class "new": the file names no node "n4"; did you mean "n1"' "$CORTADO" info --topology=class_unknown.prototxt
runs class_twice 2 'class_twice.prototxt:8: node_class "old" and "new" both have node n2' "$CORTADO" info --topology=class_twice.prototxt
runs class_missing 2 'class_missing.prototxt:8: no node_class has node n2; every node is of one' "$CORTADO" info --topology=class_missing.prototxt
runs class_typo 2 'class_typo.prototxt:8:[0-9]+: .*"sped"; did you mean "speed"' "$CORTADO" info --topology=class_typo.prototxt
runs class_speed 2 'class_speed.prototxt:8: node_class "new": speed is 0; it must be above 0' "$CORTADO" info --topology=class_speed.prototxt
runs class_borrowed 2 'node_class of machine "p3_g4" are of its own nodes' "$CORTADO" info --topology=2x4@p3_g4

# the example of the manual
sed -n '/^## Machine files/,/^## /p' "$ROOT/docs/topology.md" | sed '1,/^```$/d; /^```$/,$d' >example.prototxt
runs manual_example 0 '^  switch leaf2' "$CORTADO" info --topology=example.prototxt
is manual_sizes grep -q '24 nodes n\[025-047\],login1' out

$JOB 1 true >/dev/null 2>&1 || { skip topology_job "no $MPIRUN"; finish; }
runs job 0 '^  node '"$here"': ranks 0-1' $JOB 2 "$CORTADO" info --topology
runs job_file 0 '^  switch leaf2: ranks 0-3' $JOB 4 "$CORTADO" info --topology=machine.prototxt
runs job_classes 0 "node $here \\(old\\): ranks 0-3" $JOB 4 "$CORTADO" info --topology=classes.prototxt
runs job_conf 0 '^  switch s2: ranks 0-1' $JOB 2 "$CORTADO" info --topology=slurm:topology.conf
runs job_twin 0 '^  switch leaf2: ranks 0-1' env CORTADO_TOPOLOGY=machine.prototxt $JOB 2 "$CORTADO" info --topology
runs job_placed 0 'supernode 1: rank 1' $JOB 2 "$CORTADO" info '--topology=2sn x 1n x 1@taihulight'
runs job_other_nodes 2 "names 4 nodes, but not $here, where ranks run" $JOB 2 "$CORTADO" info --topology=other.prototxt
runs job_too_small 2 'a node holds 4 ranks by its file' $JOB 5 "$CORTADO" info --topology=machine.prototxt
runs job_no_slurm 2 'rank 0 on .* has no SLURM_TOPOLOGY_ADDR' env -u SLURM_TOPOLOGY_ADDR $JOB 2 "$CORTADO" info --topology=slurm
runs job_not_the_spec 2 '2 nodes of 2 ranks, but 3 ranks run' $JOB 3 "$CORTADO" info --topology=2x2
runs job_file_missing 3 'cannot read ./nothere.prototxt: No such file' $JOB 2 "$CORTADO" info --topology=./nothere.prototxt
# each is said once, not by every rank
is said_once [ "$(grep -c 'cannot read' out)" = 1 ]

# what SLURM would set, on ranks of one host that MPI says share memory: two addresses contradict
cat >slurm.sh <<'EOF'
export SLURMD_NODENAME=n$((OMPI_COMM_WORLD_RANK + 1))
export SLURM_TOPOLOGY_ADDR=top.leaf$((OMPI_COMM_WORLD_RANK + 1)).$SLURMD_NODENAME SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node
exec "$@"
EOF
if $JOB 1 sh -c 'test -n "$OMPI_COMM_WORLD_RANK"' 2>/dev/null; then
    runs job_slurm_contradicts 2 'ranks 0 and 1 share memory, but SLURM has them at' $JOB 2 sh slurm.sh "$CORTADO" info --topology=slurm
    runs job_slurm_doubted 0 "SLURM's topology is not used" $JOB 2 sh slurm.sh "$CORTADO" info --topology
else
    skip job_slurm_contradicts "no Open MPI"
fi

# bound ranks show the sockets of a node: hwloc is told of two, the machine needs two cores
if has hwloc && $MPIRUN -np 2 --oversubscribe --bind-to core true >/dev/null 2>&1; then
    runs job_sockets 0 'in each: 2 sockets of 1 rank' env -u HWLOC_COMPONENTS $MPIRUN -np 2 --oversubscribe --bind-to core \
        -x HWLOC_SYNTHETIC='pack:2 [numa] core:1 pu:1' "$CORTADO" info --topology
else
    skip job_sockets "no hwloc, or cannot bind ranks to cores"
fi

# training takes them, too
make_case
runs train_on_file 0 'on 1 node, 1 switch \(machine file machine.prototxt\)' $JOB 2 "$CORTADO" train --solver=solver.prototxt --iterations=2 --topology=machine.prototxt
runs train_refused 2 'names 4 nodes, but not' $JOB 2 "$CORTADO" train --solver=solver.prototxt --iterations=2 '--set=comm.topology="other.prototxt"'
finish
