// SPDX-License-Identifier: Apache-2.0
// Teams of threads that run the parts of a region: the executor under parallel.h.
//
// A region has n parts; each is run exactly once. The caller runs part 0, helper i is offered part i.
// When the caller's part is done it takes back every offer that no helper has accepted and runs that
// part itself, so that a helper whose CPU is busy elsewhere costs nothing but its share; it waits only
// for parts that have begun. A part that has ended has passed all barriers of its region, so taking
// over behind it cannot block the others.
//
// After a region the caller's invalid flag (base/invalid.h) is up if it came up in any part.
//
// A team belongs to one caller during a region; callers in several threads have a team each, as many
// as ever ran at once. Helpers are detached, block all signals, spin for a while after work and then
// sleep on a futex. They inherit the CPU mask of the thread that made them, and a team is given only
// to callers with that mask. After fork() the child makes new teams.
#ifndef HN_BASE_TEAM_H
#define HN_BASE_TEAM_H
#include <stdbool.h>
#include <stdint.h>

typedef void (*hn_team_fn)(void *data);

// Runs fn(data) for each of `parts` parts and returns when all have ended. Never fewer, even where the
// system gives no threads: oneDNN has cut its work for the number asked for. Inside a region: once, as
// a region of one part (and hn_team_active stays true).
void hn_team_run(hn_team_fn fn, void *data, int parts);
// Of the part that this thread runs now; 0 of 1 outside.
int hn_team_part(void);
int hn_team_parts(void);
bool hn_team_active(void); // inside a region of more than one part
// Waits for all parts of the region. Either every part calls it equally often, or none.
void hn_team_barrier(void);
// The most parts, up to `parts`, that can stand at a barrier together: 1 where the system gives no
// threads. Work with barriers is cut for no more; a region of more waits at its barrier until the
// system gives them.
int hn_team_limit(int parts);

// What this thread has called so far: regions of more than one part, and the parts of late helpers
// that it took over in them.
uint64_t hn_team_regions(void);
uint64_t hn_team_taken_over(void);
#endif
