/** @file machine.h  A machine as data: a tree of levels with what their links carry. No MPI in
 * here.
 *
 * A vertex of level l joins vertices of level l - 1; the members of level 0 are ranks. Innermost
 * first; the last level has one vertex, the machine. A machine comes from a file or a ready name,
 * from a spec such as "4sn x 256n x 1", or from what a job finds out about itself (discover.h).
 * topo.h places ranks on it. docs/topology.md is the reference of the file.
 */
#ifndef CT_MACHINE_H
#define CT_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/text.h"
#include "topology/torus.h"

enum { CT_MAX_LEVEL = 8, CT_MAX_TIME = 28, CT_MAX_IN_NETWORK = 256, CT_MAX_NODE_CLASS = 16 };

/** Who sends to whom in a step of a collective. A link, or the cores that serve it, need not carry
 * them alike: one connection with data in both directions, two with one each, one with one. */
typedef enum ct_pattern {
    CT_PATTERN_SWAP,    /* two ranks send to each other: halving                   */
    CT_PATTERN_SHIFT,   /* each sends to one rank and receives from another: rings */
    CT_PATTERN_ONE_WAY, /* ranks send or receive: trees                            */
    CT_PATTERN_N
} ct_pattern;

/** Figures of all vertices of a level. Bytes are counted per direction: links are full duplex. */
typedef struct ct_level {
    char name[24]; /* "numa" "socket" "node" "switch" "supernode" "group" "machine" …           */
    int64_t size;  /* members of a full vertex; 0: as many as come                              */
    double latency_s; /* one-way time of a tiny message between two ranks that meet here (lowest
                         common vertex) */
    double bandwidth; /* bytes/s that one such pair gets alone */
    double uplink;    /* bytes/s of the link from ONE member up into the vertex: all of a member's
                         traffic to its siblings and beyond shares it. 0: all that the member's own
                         members inject; -k: that over k. ct_machine_fill_uplinks() makes it a
                         figure, at the latest when ranks are placed */
    bool pairwise;    /* members are joined pairwise (groups of a dragonfly): a pair of members has
                         uplink / (members - 1)                                                    */
    ct_torus torus; /* of the level after the node: its nodes stand on one. `bandwidth` is that of a
                       link, and `uplink` what a node sends into all of its links             */
    double hop_s;   /* with a torus: what each link beyond the first adds to the latency       */
    double bus;     /* bytes/s that all messages meeting in one vertex share (a node's memory);
                       0: no limit                                                               */
    double residual; /* of a fit: relative RMS error; 0: not fitted                               */
    double burst;    /* bytes that a link which was idle lets through at once, faster than its
                        bandwidth (token buckets of shaped networks); only times below count it   */
    int n_time;      /* times of messages that a fit took; 0: none, latency and bandwidth are all */
    double time_bytes[CT_MAX_TIME]; /* ascending */
    double time_s[CT_PATTERN_N][CT_MAX_TIME];
} ct_level;

/** What a step of a collective with messages of this many bytes takes ranks that meet on the level
 * and have it to themselves, as a fit measured it. It is half of a step whose receivers add and of
 * the step back that puts the sums in place. Between two measured times a straight line, beyond
 * them the bandwidth; without any, latency and bandwidth, and nothing for the additions. */
double ct_level_message_s(const ct_level *l, ct_pattern pattern, double bytes);

/** Sums of a buffer of S bytes in the memory that a node's ranks share take
 *  2 latency_s + 2 min(S, cached) / cached_bandwidth + 2 max(0, S - cached) / bandwidth. */
typedef struct ct_shared_memory {
    double latency_s;        /* of the ranks' waiting for each other                             */
    double cached_bandwidth; /* bytes/s that a rank reads and writes, all at once, from caches   */
    double cached;           /* bytes of a buffer that stay there                                */
    double bandwidth;        /* bytes/s beyond; 0: nothing is known, the levels are all there is */
    double residual;         /* of the fit                                                       */
    int n_time; /* times of whole sums that a fit took; where there are any they count, up to the
                   largest, and beyond it `bandwidth` */
    double time_bytes[CT_MAX_TIME], time_s[CT_MAX_TIME]; /* ascending bytes */
} ct_shared_memory;

/** MPI's own allreduce where switches add up what passes through them. A buffer of S bytes in n
 *  pieces of up to max_bytes, one after the other, takes n latency_s + S / bandwidth. Each rank
 *  sends it up the tree of switches once and gets it back once, while both stream. SHARP's figures
 *  in docs/topology.md. */
typedef struct ct_in_network {
    double latency_s;  /* of an allreduce of a few bytes                               */
    double bandwidth;  /* bytes/s of the buffer; 0: the network does not add           */
    int64_t max_bytes; /* of one operation of the network; a multiple of 8; 0: no limit */
} ct_in_network;

/** A kind of nodes, where a machine has several. What is 0 is as the levels say. */
typedef struct ct_node_class {
    char name[24];
    double speed;  /* of computing, adding and coding, above 0; 1: the node that profiles,
                      sum_bandwidth and coding are of                                          */
    double memory; /* bytes of a node; 0: not known                                            */
    double inside; /* bytes/s that two ranks of a node get alone, in place of the bandwidth of
                      level "node"; bandwidths, uplinks and buses of all levels inside a node go
                      with it, in proportion                                                   */
    double inject; /* bytes/s of the link of a node into the network, in place of the uplink of
                      the level after "node"                                                   */
    char profile[256]; /* what a rank of it takes, measured: files for `cortado plan`; "": none */
    /* For plans of memory. What is 0 is not known. */
    int gpus;
    double gpu_memory;                /* bytes of each                                         */
    double gpu_link;                  /* bytes/s between a GPU's memory and the host's, each way */
    double host_bandwidth;            /* bytes/s that the node's memory gives                  */
    double file_read, file_write;     /* bytes/s of the node's own disk                        */
    double gpu_flop, gpu_half_flop;   /* operations/s of a GPU in f32; in 16 bits               */
    double gpu_usable, memory_usable; /* shares that a plan may take, above 0 and at most 1    */
} ct_node_class;

/** Nodes first..last of a machine are of this class. */
typedef struct ct_node_run {
    int64_t first, last;
    int node_class;
} ct_node_run;

/** What codecs take on a rank whose node's other ranks do the same, as measured there. */
typedef struct ct_codec_speed {
    double memory;   /* bytes/s that streams read and write; 0: they take no time               */
    double update_s; /* seconds an element: momentum and residual                               */
    double select_s; /* … what a selection adds to that                                         */
    double pack_s;   /* seconds an entry: rounded and packed                                    */
    double add_s;    /* … unpacked and added to a vector                                        */
    double merge_s;  /* … of two lists, merged and sorted out                                   */
    double sign_s;   /* seconds an element: what signs add to the update                        */
    double unsign_s; /* … of a payload of signs, added to a vector                              */
    double factor_s; /* … what a matrix's factors add to the update, however many columns …     */
    double column_s; /* … and for each column                                                   */
    double int8_s;   /* seconds an element: 8-bit integers of a vector                          */
    double unint8_s; /* … back, in the mean of plain and added                                  */
    double int4_s;   /* the same of 4 bits                                                      */
    double unint4_s;
    double one_core; /* how many times as long one of the rank's cores takes alone; 0: unknown  */
    bool measured;   /* no: estimates from the bandwidth of additions                           */
} ct_codec_speed;

/** Seconds that a sum of a buffer of this many bytes takes. */
double ct_shared_memory_s(const ct_shared_memory *m, double bytes);
/** Pieces that a buffer goes through the network in; 0: the network does not add, or they would be
 *  more than CT_MAX_IN_NETWORK, and the ranks add. */
int ct_in_network_pieces(const ct_in_network *n, double bytes);
/** Seconds of all of them; at least one. */
double ct_in_network_s(const ct_in_network *n, double bytes);

/** The named nodes of a real cluster and the switches above them. */
typedef struct ct_machine_names ct_machine_names;

typedef struct ct_machine {
    char name[64];
    char source[256]; /* where the figures come from */
    int n_level;
    int node_level; /* whose vertices share memory: the level named "node" */
    ct_level level[CT_MAX_LEVEL];
    double sum_bandwidth; /* bytes of f32 that a rank adds per second (gamma = 1 / it); 0: free */
    ct_shared_memory shared;
    ct_in_network in_network;
    ct_codec_speed coding; /* as measured; else zero: ct_machine_codec_speed()                */
    int n_node_class;      /* 0: all nodes are alike                                      */
    ct_node_class node_class[CT_MAX_NODE_CLASS];
    int n_node_run;
    ct_node_run *node_run;   /* owned; ascending, and every node of the machine is in one of them;
                                NULL with one class: it has all nodes */
    ct_machine_names *names; /* owned; NULL: the nodes have no names */
} ct_machine;

/** spec: numbers joined by x, outermost first, the last counts the ranks of the innermost vertex:
 *  "2x4" is 2 nodes of 4 ranks, "4sn x 256n x 1" 4 supernodes of 256 nodes of 1 rank, "torus:4x4" a
 *  torus of 16 nodes of 1 rank. A number may
 *  say what it counts: numa, s (socket), n (node), bl (blade), ch (chassis), rk (rack), sw
 * (switch), sn (supernode), g (group), r (rank). Without, they are switches, nodes, ranks. The
 * figures of the links are guesses that only rank algorithms. Caller destroys. CT_ERR_CONFIG. */
ct_status ct_machine_from_spec(const char *spec, ct_machine **machine_p);
/** A file (a path, or the name of a file that is there), or the name of a ready machine. Its fields
 *  are those of MachineParameter (framework/proto/cortado.proto). Caller destroys. CT_ERR_CONFIG
 *  with file and line, or with the nearest ready name; CT_ERR_IO. */
ct_status ct_machine_read(const char *path_or_name, ct_machine **machine_p);
/** The same of a text that stands in file `name`. */
ct_status ct_machine_parse(const char *name, const char *text, size_t size, ct_machine **machine_p);
/** Appends the machine as a file that reads back equal, its figures to 12 digits. CT_ERR_NOMEM. */
ct_status ct_machine_write(const ct_machine *m, ct_text *out);
void ct_machine_destroy(ct_machine *machine); /* NULL allowed */

/** What was measured of codecs; else estimates: the traffic of memory of what the code reads and
 *  writes, at 3 times the bandwidth of additions (which read two and write one). */
ct_codec_speed ct_machine_codec_speed(const ct_machine *m);
/** The same of a memory that streams so many bytes a second; 0: all is free. */
ct_codec_speed ct_coding_estimate(double memory);
/** The same figures of a node of this speed (1: as they are). */
ct_codec_speed ct_codec_speed_at(ct_codec_speed s, double speed);
/** Guesses for a level of this name, `above` levels above the node (below it: negative). */
void ct_level_guess(const char *name, int above, ct_level *level_p);
/** Makes figures of the uplinks that are 0 or below, where sizes allow. What a rank or a node
 *  injects is the level's bandwidth. A larger member injects what its members do, over the
 *  oversubscription. n_member[l]: stands in for an open size of level l; NULL: such stay as they
 *  are. */
void ct_machine_fill_uplinks(ct_machine *m, const int64_t *n_member);
/** Members of the levels first..last of a full machine multiplied; 0 where one is open. */
int64_t ct_machine_product(const ct_machine *m, int first, int last);
/** Nodes that the machine has; 0: as many as come. */
int64_t ct_machine_n_node(const ct_machine *m);
/** The class of a node: an index into node_class; -1 where all nodes are alike. Nodes are numbered
 *  from 0, in the order of the names where it has any. */
int ct_machine_node_class(const ct_machine *m, int64_t node);
/** Makes classes of a machine's nodes from how fast each computes (any unit). Nodes within 10 % of
 *  the slowest of a class are of that class. Its speed is their mean, over that of the slowest
 *  class. All alike: one class without a list of nodes. Takes the place of what classes m had.
 *  CT_ERR_NOMEM. */
ct_status ct_machine_class_speeds(ct_machine *m, const double *speed, int64_t n_node);
/** Appends the nodes of a class as its file lists them: "0-3,8" or "n[1-4,9]". */
void ct_machine_list_nodes(const ct_machine *m, int node_class, ct_text *out);

/** The ready machines, topology/machines/NAME.prototxt, as the build put them into the program;
 * ends with a NULL name. */
typedef struct ct_ready_machine {
    const char *name, *text;
} ct_ready_machine;
extern const ct_ready_machine ct_ready_machine_table[];
/** The text of a ready machine, or NULL. */
const char *ct_machine_ready(const char *name);
/** True for what names a file: it has a '/', ends in ".prototxt", or is there. */
bool ct_machine_is_path(const char *text);
/** Logs that nothing is known by this name, with what may be meant. CT_ERR_CONFIG. */
ct_status ct_machine_fail_unknown(const char *name);

#endif
