// SPDX-License-Identifier: Apache-2.0
// Memory of a process and all its descendants, from /proc.
#ifndef HN_FLEET_TREE_MEMORY_H
#define HN_FLEET_TREE_MEMORY_H
#include <stdint.h>
#include <sys/types.h>

// Private pages of all of them, and the largest set of pages that one of them shares; -1 unknown.
int64_t hn_tree_memory_bytes(pid_t root);
#endif
