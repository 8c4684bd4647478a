/** @file discover.h  A job's topology, from what its ranks know and what the user says.
 *
 * comm/ gathers what every rank knows; here it becomes a tree. What the user names is believed
 * first, then SLURM's word on switches, then the binding inside a node, then MPI's word on who
 * shares memory. No MPI in here, so each source is tested with made-up facts.
 */
#ifndef CT_DISCOVER_H
#define CT_DISCOVER_H

#include "topology/topo.h"

/** Where a rank runs. */
typedef struct ct_rank_place {
    uint64_t host;        /* equal where MPI says that memory is shared                       */
    int32_t socket, numa; /* the one that the rank is bound to; -1: to several, or not known */
} ct_rank_place;

/** What the rank's surroundings are called. */
typedef struct ct_rank_name {
    char node[64];     /* SLURMD_NODENAME, else the host name             */
    char address[256]; /* SLURM_TOPOLOGY_ADDR, such as "spine.leaf2.n3"; "" without */
    char pattern[128]; /* SLURM_TOPOLOGY_ADDR_PATTERN, "switch.switch.node" */
} ct_rank_name;

typedef struct ct_job_facts {
    int n_rank;
    const ct_rank_place *place; /* [n_rank]                                            */
    const ct_rank_name *name;   /* [n_rank], or NULL: nobody needs them                */
    const char *node_list;      /* SLURM's of the step or job; NULL or "": none        */
    bool speaks;                /* this process logs warnings; one of the job does     */
} ct_job_facts;

/** What the user said: the parts of a `topology:` text. */
typedef enum ct_topo_kind {
    CT_TOPO_AUTO,  /* "auto"; "auto@MACHINE": the tree as found, with that one's figures  */
    CT_TOPO_SLURM, /* "slurm": its addresses or nothing; "slurm@MACHINE"                 */
    CT_TOPO_CONF,  /* "slurm:PATH": a topology.conf                                      */
    CT_TOPO_SPEC,  /* "2x4", "map:0010": pretended nodes; "2x4@MACHINE": with its figures */
    CT_TOPO_PLACE, /* "place:MACHINE,RANKS_PER_NODE,PLACEMENT": a made-up job on it       */
    CT_TOPO_FILE   /* a machine file or a ready machine                                  */
} ct_topo_kind;

typedef struct ct_topo_text {
    ct_topo_kind kind;
    char spec[256];     /* of CT_TOPO_SPEC; of CT_TOPO_PLACE the placement               */
    char machine[1024]; /* path or ready name; "": none                                  */
    int ranks_per_node; /* of CT_TOPO_PLACE                                              */
    bool needs_names;   /* ct_job_facts.name is needed; of FILE only where it has names  */
} ct_topo_text;

/** Takes a `topology:` text apart. CT_ERR_CONFIG. */
ct_status ct_topo_text_parse(const char *topology, ct_topo_text *text_p);
/** The file that it needs read (by one rank, for all), or NULL. */
const char *ct_topo_text_file(const ct_topo_text *text);
/** The machine that it names: of the text of its file, or where file is NULL a ready one.
 * *machine_p is NULL where it names none. CT_ERR_CONFIG. */
ct_status ct_topo_text_machine(const ct_topo_text *text, const char *file, size_t size,
                               ct_machine **machine_p);
/** Puts the made-up machine of a CT_TOPO_SPEC, with the figures of *machine_p where that is not
 * NULL, in its place. CT_ERR_CONFIG. */
ct_status ct_topo_text_spec(const ct_topo_text *text, ct_machine **machine_p);
/** The topology. machine: what ct_topo_text_machine() gave. CT_ERR_CONFIG where the user's word and
 *  the facts disagree, with the names of the nodes; "auto" warns and goes on with the next source.
 */
ct_status ct_topo_discover(const ct_topo_text *text, const ct_machine *machine,
                           const ct_job_facts *facts, ct_topo **topo_p);

/** Fills in this process's names, from the environment and the host. */
void ct_rank_name_fill(ct_rank_name *name);
/** The socket and NUMA node within which this thread is bound; -1 where that is several, where the
 *  machine has but one of them, or where hwloc was not there when this was built. */
void ct_rank_place_inside(int32_t *socket_p, int32_t *numa_p);
/** SLURM's list of the step's nodes, else of the job's; "" without. */
const char *ct_slurm_node_list(void);

/** A SLURM topology.conf of tree form as a machine with names and guessed figures. name: of the
 *  file, for messages. CT_ERR_CONFIG with file and line. */
ct_status ct_slurm_parse_conf(const char *name, const char *text, size_t size,
                              ct_machine **machine_p);

#endif
