#!/bin/bash
# A real Slurm cluster of pretended nodes on this machine: slurmctld and one slurmd a node.
#   tests/slurm/cluster.sh up DIR [NODES]     then  . DIR/env.sh
#   tests/slurm/cluster.sh down DIR
# Needs root, slurmctld, slurmd and munge. No systemd, cgroups or database.
set -eu

dir=$2
nodes=${3:-4}
host=$(hostname -s)
port=${CORTADO_SLURM_PORT:-6817}

start_munge() {
    install -d -o munge -g munge -m 755 /run/munge
    install -d -o munge -g munge -m 700 /var/log/munge /var/lib/munge
    munge -n >/dev/null 2>&1 && return
    setpriv --reuid=munge --regid=munge --clear-groups /usr/sbin/munged --pid-file=/run/munge/munged.pid
    echo started >"$dir/munge"
    for _ in $(seq 50); do
        munge -n 2>/dev/null | unmunge >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "munge does not answer" >&2
    exit 1
}

# Nothing here is held by cgroups, so none need be mounted: slurmd looks for them unless told. Before
# version 23 there was no plugin of this name; that for version 1 looks for nothing while nothing is held.
write_cgroup_config() {
    case $(slurmd -V) in # slurm-wlm 22.05.8
    *" 2"[0-2].*) echo CgroupPlugin=cgroup/v1 ;;
    *) echo CgroupPlugin=disabled ;;
    esac >"$dir/cgroup.conf"
}

# A job whose script exits with 75 is put back into the queue: RequeueExit.
write_config() {
    cat >"$dir/slurm.conf" <<EOF
ClusterName=cortado
SlurmctldHost=$host
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire=5
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
TmpFS=$dir/tmp.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2
TopologyPlugin=topology/tree
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
JobRequeue=1
RequeueExit=75
SlurmdParameters=config_overrides
NodeName=n[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 10001))-$((port + 10000 + nodes)) CPUs=2 RealMemory=2000
PartitionName=all Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE State=UP
EOF
    half=$((nodes / 2))
    {
        echo "SwitchName=leaf1 Nodes=n[1-$half]"
        echo "SwitchName=leaf2 Nodes=n[$((half + 1))-$nodes]"
        echo "SwitchName=spine Switches=leaf[1-2]"
    } >"$dir/topology.conf"
}

up() {
    mkdir -p "$dir/state"
    for i in $(seq "$nodes"); do mkdir -p "$dir/spool.n$i" "$dir/tmp.n$i"; done
    start_munge
    write_config
    write_cgroup_config
    export SLURM_CONF=$dir/slurm.conf
    slurmctld -f "$SLURM_CONF" -c
    for i in $(seq "$nodes"); do slurmd -f "$SLURM_CONF" -N "n$i"; done
    # The pretended nodes have one host name, so shared-memory files of Open MPI would collide:
    # messages go through TCP, and MPI's processes give the core away while they wait.
    cat >"$dir/env.sh" <<EOF
export SLURM_CONF=$dir/slurm.conf SLURM_PMIX_DIRECT_CONN=false
export OMPI_MCA_btl=tcp,self OMPI_MCA_mpi_yield_when_idle=1
EOF
    for _ in $(seq 100); do
        [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "$nodes" ] && return
        sleep 0.1
    done
    echo "the nodes do not come up:" >&2
    sinfo >&2
    exit 1
}

down() {
    for f in "$dir"/slurmd.*.pid "$dir"/slurmctld.pid; do
        [ -f "$f" ] && kill "$(cat "$f")" 2>/dev/null || true
    done
    if [ -f "$dir/munge" ]; then kill "$(cat /run/munge/munged.pid)" 2>/dev/null || true; fi
}

case $1 in
up) up ;;
down) down ;;
*) echo "usage: $0 up DIR [NODES] | down DIR" >&2; exit 2 ;;
esac
