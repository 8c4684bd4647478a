/* Every file of tests/golden/broken gives exactly the message that expected.txt says. */
#include "tests/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/upgrade.h"
#include "tests/log_capture.h"

#define FOLDER "tests/golden/broken/"

static ct_status read_any(const char *path, bool is_solver, ct_source_map *map)
{
    Ct__SolverParameter *solver;
    Ct__NetParameter *net;
    ct_status status =
        is_solver ? ct_solver_read(path, map, &solver) : ct_net_read(path, map, &net);

    if ((status == CT_OK) && is_solver) ct__solver_parameter__free_unpacked(solver, NULL);
    if ((status == CT_OK) && !is_solver) ct__net_parameter__free_unpacked(net, NULL);
    return status;
}

/* One line of the table: "NAME.prototxt:LINE:COLUMN: message". */
static void check_line(const char *line)
{
    size_t length = strcspn(line, ":");
    char path[256], expected[4096];
    log_capture c;
    ct_source_map *map;
    ct_status status;

    snprintf(path, sizeof(path), FOLDER "%.*s", (int)length, line);
    snprintf(expected, sizeof(expected), FOLDER "%s", line);
    assert_int_equal(ct_source_map_create(&map), CT_OK);
    log_capture_start(&c);
    status = read_any(path, strncmp(line, "solver_", 7) == 0, map);
    log_capture_stop();
    ct_source_map_destroy(map);
    assert_string_equal(c.error, expected);
    assert_int_equal(c.n_error, 1);
    assert_int_equal(status, CT_ERR_CONFIG);
    assert_int_equal(ct_status_exit_code(status), 2);
}

static int count_files(void)
{
    DIR *folder = opendir(FOLDER);
    int n = 0;

    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder)) != NULL;)
        n += strstr(e->d_name, ".prototxt") != NULL;
    closedir(folder);
    return n;
}

static void broken_files(void **state)
{
    char *table, *line, *rest;
    size_t size;
    int n = 0;

    (void)state;
    assert_int_equal(ct_file_read(FOLDER "expected.txt", &table, &size), CT_OK);
    for (rest = table; (line = strsep(&rest, "\n")) != NULL;) {
        if (*line == '\0') continue;
        check_line(line);
        n++;
    }
    free(table);
    assert_int_equal(n, count_files());
    assert_true(n >= 30);
}

int main(void)
{
    const struct CMUnitTest test[] = { cmocka_unit_test(broken_files) };

    return cmocka_run_group_tests(test, NULL, NULL);
}
