/* `guest watch PATH PATTERN...`: writes events of PATH to its output, each as a length, its kind, whether it is of a folder,
 * and two texts. */
#define _GNU_SOURCE
#include "guest.h"
#include "watch_drop.h"
#include "watch_events.h"
#include "watch_found.h"
#include "watch_incomplete.h"
#include "watch_limits.h"
#include "watch_moves.h"
#include "watch_names.h"
#include "watch_open.h"
#include "watch_patterns.h"
#include "watch_scan.h"
#include "watch_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BUFFER_SIZE 65536
#define ROOT_GONE "the folder was removed or renamed"

static bool over;
static bool events_read; /* since scans were settled */

static void end_watch(const char *reason)
{
	if (!over)
		event_add(GONE, true, "", reason);
	over = true;
}

static void handle_lost(void)
{
	event_add(OVERFLOWED, true, "", "queue_overflow");
	if (!tree_rebuild())
		end_watch(strerror(errno));
}

/* What the tree has at this place, and is not there. Returns whether there was any. */
static bool drop_replaced(struct folder *child, bool known, struct folder **moved)
{
	if (!child || known)
		return false;
	if (*moved && tree_is_below(*moved, child))
		*moved = NULL;
	tree_drop(child);
	return true;
}

/* MOVED, if there is one, is what was renamed: unless it is there, or where patterns may mean other entries at the new
 * place, it is as if it had come from elsewhere. So is what was not watched before. What a scan has found at this place
 * already is what is there. */
static void place_folder(struct folder *parent, const char *name, const char *path, struct folder *moved, struct event *removal)
{
	struct folder *child = tree_child(parent, name);
	bool known = child && tree_is_there(child), renamed = false;
	bool replaced = drop_replaced(child, known, &moved);
	if (moved && !known && !patterns_anchored()) {
		tree_move(moved, parent, name);
		renamed = tree_is_there(moved);
	}
	if (renamed)
		event_rename(removal, path);
	else if (moved)
		tree_drop(moved);
	if (renamed || known)
		return;
	names_remove(parent, name);
	if (replaced)
		event_add(REMOVED, true, path, "");
	event_add(ADDED, true, path, "");
	tree_enter(parent, name, true);
}

/* What was renamed onto something that is there is removed, and that is changed. */
static void place_file(struct folder *parent, const char *name, const char *path, struct folder *moved, struct event *removal)
{
	struct folder *child = tree_child(parent, name);
	bool known = child && tree_is_there(child);
	bool replaced = drop_replaced(child, known, &moved), existed = names_have(parent, name);
	if (moved)
		tree_drop(moved);
	if (known)
		return;
	names_add(parent, name);
	if (removal && !existed) {
		event_rename(removal, path);
		return;
	}
	if (replaced)
		event_add(REMOVED, true, path, "");
	event_add(existed || tree_reported(parent, name) ? CHANGED : ADDED, false, path, "");
}

static void handle_arrival(struct folder *parent, const struct inotify_event *event, const char *path, bool is_folder)
{
	struct folder *moved = NULL;
	struct event *removal = NULL;
	if (event->mask & IN_MOVED_TO)
		move_take(event->cookie, &moved, &removal);
	if (ignored(path, is_folder)) {
		if (moved)
			tree_drop(moved);
	} else if (is_folder) {
		place_folder(parent, event->name, path, moved, removal);
	} else if (!(event->mask & IN_CREATE) || !tree_reported(parent, event->name)) {
		place_file(parent, event->name, path, moved, removal);
	}
	parent = tree_find(event->wd); /* a scan may have found that it is elsewhere, too */
	if (parent && event->mask & IN_MOVED_TO)
		move_arrived(parent, event->name, event->cookie);
}

/* What is there at present came later, or is there again: the event is of something before it, which no scan has found. */
static void handle_departure(struct folder *parent, const struct inotify_event *event, const char *path, bool is_folder)
{
	struct folder *child = tree_child(parent, event->name);
	if (child && tree_is_there(child))
		return;
	tree_forget(parent, event->name);
	names_remove(parent, event->name);
	if (event->mask & IN_MOVED_FROM && (is_folder || !child)) {
		move_begin(event->cookie, child, path, is_folder);
		move_left(parent, event->name, event->cookie);
		return;
	}
	event_add(REMOVED, is_folder, path, "");
	if (child)
		tree_drop(child);
}

static void handle_entry(struct folder *folder, const struct inotify_event *event)
{
	char path[MAX_WATCH_PATH];
	bool is_folder = event->mask & IN_ISDIR;
	if (tree_is_moving(folder)) {
		moves_give_up(); /* its second half, if there is one, has it scanned */
	} else if (!tree_path(folder, event->name, path)) {
		report_long(folder);
	} else if (event->mask & (IN_MOVED_TO | IN_CREATE)) {
		handle_arrival(folder, event, path, is_folder);
	} else if (event->mask & (IN_MOVED_FROM | IN_DELETE)) {
		if (!ignored(path, is_folder))
			handle_departure(folder, event, path, is_folder);
	} else if (!is_folder && !ignored(path, false)) {
		event_add(CHANGED, false, path, "");
	}
}

/* The kernel removed the watch of a folder that no event of the folder above it has removed. */
static void handle_end(struct folder *folder)
{
	char path[MAX_WATCH_PATH];
	if (!tree_is_moving(folder) && tree_path(folder, "", path))
		event_add(REMOVED, true, path, "");
	tree_drop(folder);
}

/* Returns whether the rest of the buffer still means something. */
static bool handle_event(const struct inotify_event *event)
{
	struct folder *folder = tree_find(event->wd);
	if (event->mask & IN_Q_OVERFLOW) {
		handle_lost();
		return false;
	}
	if (!folder)
		return true;
	bool of_root = !folder->parent;
	if (of_root && event->mask & (IN_IGNORED | IN_MOVE_SELF | IN_UNMOUNT))
		end_watch(ROOT_GONE);
	else if (event->mask & IN_IGNORED)
		handle_end(folder);
	else if (event->len)
		handle_entry(folder, event);
	return true;
}

static void read_events(void)
{
	static char buffer[BUFFER_SIZE] __attribute__((aligned(8)));
	ssize_t got = read(inotify, buffer, sizeof buffer);
	events_read = true;
	for (ssize_t at = 0; at < got && !over;) {
		const struct inotify_event *event = (const void *)(buffer + at);
		at += (ssize_t)sizeof *event + event->len;
		if (!handle_event(event))
			break;
	}
}

/* Nothing waits to be read: the tree is as it is there, but for what happens at this moment. */
static void settle(void)
{
	int waiting = 0;
	if (over || ioctl(inotify, FIONREAD, &waiting) || waiting)
		return;
	if (events_read)
		tree_settled();
	events_read = false;
	if (!moves_wait() && !tree_complete())
		end_watch(ROOT_GONE);
}

/* Returns milliseconds until something is to be done without an event; SENDING: what events_send returned. */
static int time_to_wait(int expiry, int sending)
{
	int wait = sending >= 0 ? shorter_wait(expiry, sending) : expiry;
	/* No event need come of what could not be entered: files could not be opened. */
	return over || moves_wait() ? wait : shorter_wait(wait, attempt_wait());
}

static void serve(void)
{
	for (;;) {
		int expiry = moves_expire(), sending = events_send(STDOUT_FILENO);
		if (sending == -3 || (over && sending == -1))
			return;
		/* With nothing to be sent the descriptor is polled for its end only. */
		struct pollfd sources[] = {{.fd = over ? -1 : inotify, .events = POLLIN},
					   {.fd = STDOUT_FILENO, .events = sending == -2 ? POLLOUT : 0}};
		int ready = poll(sources, 2, time_to_wait(expiry, sending));
		if (ready > 0 && sources[0].revents)
			read_events();
		settle();
		if (ready > 0 && sources[1].revents & (POLLERR | POLLNVAL))
			return;
	}
}

/* PATH is the user's, the patterns follow it. The output is non-blocking. */
int watch_main(char **argv)
{
	char count[24];
	int guest = open_guest_root();
	patterns_set(argv + 1);
	fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
	set_root(guest, argv[0]);
	if (guest >= 0 && tree_open()) {
		snprintf(count, sizeof count, "%zu", folder_count);
		event_add(READY, true, "", count);
	} else {
		end_watch(strerror(errno));
	}
	serve();
	return 0;
}
