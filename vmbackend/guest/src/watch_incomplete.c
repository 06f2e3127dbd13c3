/* The folders in which a folder could not be entered, and when they are tried again.
 *
 * An attempt takes each of them once, in pieces of a bounded time, between which events are read. After a change of the tree
 * the next comes at once, but for a pause in proportion to the time of the one before; without any, after a wait that
 * doubles. Changes of files do not count: they do not make it possible to enter a folder. */
#define _GNU_SOURCE
#include "watch_incomplete.h"

#include "watch_tree.h"

#include <time.h>

#define PIECE_US 20000
#define PAUSE_FACTOR 4 /* attempts take at most a fifth of the time, whatever happens in the tree */
#define FIRST_WAIT_MS 500
#define LONGEST_WAIT_MS 60000

static struct folder *incomplete, **incomplete_end = &incomplete;
static unsigned attempt, changes_seen;
static bool under_way, in_piece; /* an attempt; one of its pieces */
static bool found_outside;       /* since an attempt began, a folder was marked, and not by it */
static int wait_ms;              /* after the last attempt */
static long long piece_began, time_taken, ended; /* microseconds; the last two: of the last attempt */

static long long now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

void tree_set_incomplete(struct folder *folder)
{
	if (folder->incomplete_place)
		return;
	folder->attempt = attempt;
	folder->next_incomplete = NULL;
	folder->incomplete_place = incomplete_end;
	*incomplete_end = folder;
	incomplete_end = &folder->next_incomplete;
	found_outside = found_outside || !in_piece;
}

static void doubt(struct folder *folder, void *unused)
{
	(void)unused;
	tree_set_incomplete(folder);
}

void tree_doubt(void)
{
	tree_visit(doubt, NULL);
}

void incomplete_forget(struct folder *folder)
{
	if (!folder->incomplete_place)
		return;
	*folder->incomplete_place = folder->next_incomplete;
	if (folder->next_incomplete)
		folder->next_incomplete->incomplete_place = folder->incomplete_place;
	else
		incomplete_end = folder->incomplete_place;
	folder->incomplete_place = NULL;
}

static bool tree_has_changed(void)
{
	return found_outside || changes_seen != tree_changes;
}

int attempt_wait(void)
{
	if (!incomplete)
		return -1;
	if (under_way)
		return 0;
	long long pause = time_taken * PAUSE_FACTOR, wait = wait_ms * 1000LL;
	long long rest = ended + (tree_has_changed() || pause > wait ? pause : wait) - now_us();
	return rest > 0 ? (int)((rest + 999) / 1000) : 0;
}

static void begin_attempt(void)
{
	if (tree_has_changed())
		wait_ms = 0;
	attempt++;
	time_taken = 0;
	found_outside = false;
	changes_seen = tree_changes;
	under_way = true;
}

bool attempt_begin_piece(void)
{
	if (attempt_wait())
		return false;
	if (!under_way)
		begin_attempt();
	piece_began = now_us();
	in_piece = true;
	return true;
}

struct folder *attempt_next(void)
{
	struct folder *folder = incomplete;
	under_way = folder && folder->attempt != attempt;
	if (!under_way || now_us() - piece_began > PIECE_US)
		return NULL;
	incomplete_forget(folder);
	return folder;
}

bool attempt_end_piece(void)
{
	in_piece = false;
	ended = now_us();
	time_taken += ended - piece_began;
	if (under_way)
		return false;
	wait_ms = wait_ms ? 2 * wait_ms : FIRST_WAIT_MS;
	if (wait_ms > LONGEST_WAIT_MS)
		wait_ms = LONGEST_WAIT_MS;
	return incomplete;
}
