// SPDX-License-Identifier: Apache-2.0
// Running the OpenMP regions of a loaded library on our executor.
//
// oneDNN calls six functions of libgomp. hn_openmp_bind points that library's own slots for them (its
// global offset table) to functions over base/team.h. Nothing else in the process changes: libgomp
// stays loaded, and whoever else uses OpenMP keeps it.
#ifndef HN_LIBS_OPENMP_H
#define HN_LIBS_OPENMP_H
#include <stdbool.h>

// handle: of dlopen with RTLD_NOW, before any function of the library has been called. All slots are
// changed or none: false where the library needs OpenMP functions that we have not, has none, or
// where the machine is not one we know (x86-64 ELF).
bool hn_openmp_bind(void *handle);
#endif
