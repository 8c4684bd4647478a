/** @file examples.h  What the net of a run makes of some samples of the set that it tests on: their
 *  classes, or the boxes that it finds, the filters of its first convolution, and what its first
 *  convolutions put out.
 *
 * The samples go through the net for use one by one, on the rank that writes the page. */
#ifndef CT_EXAMPLES_H
#define CT_EXAMPLES_H

#include "cli/report/run_data.h"
#include "framework/proto/cortado.pb-c.h"

enum { CT_MOST_EXAMPLES = 24, CT_MOST_MISTAKES = 12, CT_MOST_ACTIVATIONS = 2 };
enum { CT_MOST_BOX_EXAMPLES = 12 /* with two pictures each */ };

typedef struct ct_example {
    char name[512];    /* as the set calls it           */
    ct_text picture;   /* PNG, as the set has it; of boxes as box_example.h draws it */
    int64_t label;     /* -1: none                      */
    int64_t predicted; /* of classes                    */
    double score;
    int64_t n_true, n_found; /* of boxes, those that are shown */
} ct_example;

/** A picture of the net's insides. */
typedef struct ct_inside {
    char title[256];
    ct_text picture; /* PNG; empty: there is none */
} ct_inside;

typedef struct ct_examples {
    char why[600];     /* there are none: the reason, for people; "": there are some */
    char weights[256]; /* the file that they come from */
    int n, n_mistake;
    ct_example example[CT_MOST_EXAMPLES]; /* evenly spread over the set             */
    ct_example mistake[CT_MOST_MISTAKES]; /* the surest, as the run's scores say it */
    bool has_boxes;                       /* each example has some, and no class; no mistakes */
    bool is_probability;                  /* what the scores are        */
    Ct__NetParameter *net;                /* for use; has the class_name */
    ct_inside filters, activation[CT_MOST_ACTIVATIONS];
} ct_examples;

/** Reads the run's nets, best or newest weights and test set. A run without them is no error:
 * e->why says what is not there. Errors, logged: what is there cannot be read. */
ct_status ct_examples_make(const ct_run_data *r, ct_examples *e);
void ct_examples_destroy(ct_examples *e);

#endif
