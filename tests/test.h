/** @file test.h  What every test includes: cmocka with its four headers. */
#ifndef CT_TEST_H
#define CT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#endif
