/** @file study.h  The folder of a study: one JSON file a run, and what was asked.
 *
 *     DIR/study.json            who asked what, when, where: one entry each call of `cortado scale`
 *     DIR/runs/NAME.json        one run: its definition, the command, how it ended, its result
 *     DIR/logs/NAME.log         what the run printed
 *     DIR/report.md, points.*   made from the files above, and from nothing else
 *
 * NAME ends in a hash of the definition, which holds everything that decides the result. So a run
 * that is already there is not repeated, and a change of anything makes another file.
 */
#ifndef CT_STUDY_H
#define CT_STUDY_H

#include "framework/base/json.h"

/** The configuration that --parallel makes. */
#define CT_SCALE_PARALLEL "parallel"

typedef struct ct_study {
    char dir[512];
    size_t made; /* so many characters of dir name the outermost folder that was made; 0: none */
} ct_study;

/** Makes the folder where it is not there. CT_ERR_IO where it cannot be written. */
ct_status ct_study_open(const char *dir, ct_study *study);
/** Removes what ct_study_open() made, as far as it is empty. */
void ct_study_discard(const ct_study *study);
/** DIR/format…, into out (of `size` bytes). */
void ct_study_path(const ct_study *study, char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/** Adds an entry to study.json; takes over the reference. */
ct_status ct_study_note(const ct_study *study, json_t *entry);
/** The entries of study.json, oldest first; an empty array where there is none. New reference. */
ct_status ct_study_notes(const ct_study *study, json_t **array_p);

/** A name for the run: readable words of its definition and the hash. */
void ct_run_name(const json_t *define, char *out, size_t size);
/** The run of that definition, if it is there, whole and good; NULL otherwise (a failed one is to
 *  be tried again; a broken file is warned of). New reference. */
json_t *ct_run_find(const ct_study *study, const json_t *define);
/** Writes a run: define and result are borrowed; result NULL: it failed because of `why`.
 *  extra: members put beside them ("command", "wall_s", …); may be NULL. */
ct_status ct_run_save(const ct_study *study, json_t *define, json_t *result, const char *why,
                      json_t *extra);
/** All runs of the folder in order of their names; broken files are listed in *broken_p (names).
 *  New references. CT_ERR_IO where there is no such folder. */
ct_status ct_run_all(const ct_study *study, json_t **array_p, json_t **broken_p);

#endif
