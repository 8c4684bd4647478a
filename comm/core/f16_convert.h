/** @file f16_convert.h  IEEE binary16, as framework/base has it. */
#ifndef CT_COMM_F16_H
#define CT_COMM_F16_H

#include "framework/base/f16.h"

#endif
