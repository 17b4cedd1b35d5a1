// SPDX-License-Identifier: Apache-2.0
// Between the watching process (p2p.c) and the copying one (p2p_copy.c): records through a pipe.
#ifndef HN_PLACE_P2P_INT_H
#define HN_PLACE_P2P_INT_H
#include "place/p2p.h"

typedef enum hn_p2p_step {
    P2P_START,   // driver, cards, contexts
    P2P_ACCESS,  // asking for and switching on access
    P2P_DATA,    // pattern there, compare
    P2P_TIME,    // one way
    P2P_BOTH,    // both ways at once
    P2P_STEPS
} hn_p2p_step;

typedef enum hn_p2p_kind {
    P2P_CARD,   // a card: name, pci, a = index
    P2P_STEP,   // step begins for pair (a, b)
    P2P_RESULT, // pair (a, b) is done
    P2P_REFUSE, // nothing can be tested: name holds the sentence
    P2P_DONE,
} hn_p2p_kind;

typedef struct hn_p2p_record { // smaller than PIPE_BUF: written whole or not at all
    int kind, step, a, b, result, verdict;
    int access;
    double gbs, both_gbs;
    int64_t wrong, first_wrong;
    char name[512], pci[32];
} hn_p2p_record;

// The copying process: pairs from number `first` on, in the order (0,1) (0,2) ... (1,0) ... Both ways
// at once is tried in the second of two directions, unless `report` says that the first is broken.
void hn_p2p_copy(int fd, const hn_p2p_report *report, int first);
#endif
