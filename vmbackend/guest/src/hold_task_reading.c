/* Reading of tasks' logs, by offset, and of what a former process left of them. */
#define _GNU_SOURCE
#include "hold_task_reading.h"

#include "hold_task_files.h"

#include <fcntl.h>
#include <unistd.h>

#define BLOCK 4096 /* read for heads: at first, as the wanted record is often the next one */
#define LARGE_BLOCK (64 << 10)
#define MAX_HOLE (UINT64_C(1) << 62)

struct log_record {
	uint8_t output;
	uint64_t size;
};

static uint64_t decode_size(const uint8_t *head)
{
	uint64_t size = 0;
	for (int i = 0; i < 8; i++)
		size = size << 8 | head[1 + i];
	return size;
}

/* The offset after the last byte that a part may have. */
static uint64_t part_end(const struct task_log *log, int number)
{
	return number + 1 < log->count ? log->parts[number + 1].start : log->end;
}

/* A record's size in its part, whose last one may be incomplete: its keeper was killed. False: there is no record. */
static bool decode_head(const struct log_part *part, const struct log_place *place, const uint8_t *head, uint64_t *size)
{
	uint64_t room = (uint64_t)(part->size - place->at - HEAD);
	*size = decode_size(head);
	if (head[0] == HOLE)
		return *size <= MAX_HOLE;
	if (*size > room)
		*size = room;
	return head[0] == 1 || head[0] == 2;
}

/* Whether nothing of a record is wanted: what was lost, what ends at or before the wanted offset, and what the reader skips
 * of its output. All of these are passed over here, as a log may have a million of them. */
static bool passes(struct log_place *place, uint8_t output, uint64_t size, uint64_t skip[2])
{
	uint64_t end = place->begin + size;
	bool whole = place->offset <= place->begin;
	if (end > place->offset && output != HOLE) {
		if (!skip || !whole || skip[output - 1] < size)
			return false;
		skip[output - 1] -= size;
	}
	if (place->offset < end)
		place->offset = end;
	return true;
}

struct scan {
	const struct log_part *part;
	struct log_place *place;
	uint64_t *skip, *sums; /* bytes of each output that are not wanted, or NULL; of those that were passed over, or NULL */
	struct log_record found;
	bool bad; /* there is no record where one should begin */
};

static off_t pass_over(struct scan *scan)
{
	const struct log_record *record = &scan->found;
	bool is_hole = record->output == HOLE;
	off_t next = HEAD + (is_hole ? 0 : (off_t)record->size);
	if (scan->sums && !is_hole)
		scan->sums[record->output - 1] += record->size;
	scan->place->at += next;
	scan->place->begin += record->size;
	return next;
}

/* The heads of one block; true for one with something that is wanted. */
static bool scan_block(struct scan *scan, const uint8_t *block, off_t size)
{
	for (off_t at = 0; size - at >= HEAD; at += pass_over(scan)) {
		scan->found.output = block[at];
		scan->bad = !decode_head(scan->part, scan->place, block + at, &scan->found.size);
		if (scan->bad)
			return false;
		if (!passes(scan->place, scan->found.output, scan->found.size, scan->skip))
			return true;
	}
	return false;
}

/* The first record with something that is wanted. False: the file has none. */
static bool find_record(int fd, struct scan *scan)
{
	static uint8_t block[LARGE_BLOCK];
	for (size_t wanted = BLOCK; scan->part->size - scan->place->at >= HEAD; wanted = sizeof block) {
		off_t rest = scan->part->size - scan->place->at;
		ssize_t got = pread(fd, block, rest < (off_t)wanted ? (size_t)rest : wanted, scan->place->at);
		if (got < HEAD)
			return false;
		if (scan_block(scan, block, got))
			return true;
		if (scan->bad)
			return false;
	}
	return false;
}

/* The part that has the place, or the oldest if its own is gone. */
static int find_part(const struct task_log *log, struct log_place *place)
{
	int number = log->count - 1;
	if (place->offset < log->parts[0].start)
		place->offset = log->parts[0].start;
	while (number && log->parts[number].start > place->offset)
		number--;
	if (place->at < 0 || place->part != log->parts[number].start || place->begin > place->offset) {
		place->part = place->begin = log->parts[number].start;
		place->at = 0;
	}
	return number;
}

/* 0: nothing of the part is there any more; the place is at its end then. */
static size_t read_part(const struct task_log *log, int number, struct log_place *place, struct log_piece *piece, uint64_t skip[2])
{
	struct scan scan = {.part = &log->parts[number], .place = place, .skip = skip};
	ssize_t got = 0;
	int fd = task_file_open(log->task, &scan.part->start, O_RDONLY);
	if (fd >= 0 && find_record(fd, &scan)) {
		uint64_t passed = place->offset - place->begin, left = scan.found.size - passed;
		got = pread(fd, piece->data, left < piece->limit ? left : piece->limit, place->at + HEAD + (off_t)passed);
		piece->output = scan.found.output;
	}
	if (fd >= 0)
		close(fd);
	if (got <= 0)
		place->offset = part_end(log, number);
	return got > 0 ? (size_t)got : 0;
}

size_t log_read(const struct task_log *log, struct log_place *place, struct log_piece *piece, uint64_t skip[2])
{
	while (log->count && place->offset < log->end) {
		size_t size = read_part(log, find_part(log, place), place, piece, skip);
		piece->from = place->offset;
		place->offset += size;
		if (size)
			return size;
	}
	if (place->offset < log->end)
		place->offset = log->end;
	return 0;
}

/* Returns the offset at the end of a part's records. */
static uint64_t sum_part(const struct task_log *log, const struct log_part *part, uint64_t sums[2], off_t *complete)
{
	struct log_place place = {.offset = UINT64_MAX, .begin = part->start};
	struct scan scan = {.part = part, .place = &place, .sums = sums};
	int fd = task_file_open(log->task, &part->start, O_RDONLY);
	if (fd >= 0) {
		find_record(fd, &scan);
		close(fd);
	}
	*complete = place.at;
	return place.begin;
}

void log_sums(const struct task_log *log, uint64_t sums[2])
{
	off_t complete;
	sums[0] = sums[1] = 0;
	for (int i = 0; i < log->count; i++)
		sum_part(log, &log->parts[i], sums, &complete);
}

bool log_found(struct task_log *log, uint64_t start)
{
	off_t size = task_file_size(log->task, &start);
	if (size < 0 || (log->count == LOG_FILES && log->parts[0].start > start))
		return false;
	if (log->count == LOG_FILES) /* killed before it had removed the oldest one */
		log_remove_oldest(log);
	int place = log->count;
	if (place && log->parts[0].start > start)
		log->parts[1] = log->parts[--place];
	log->parts[place] = (struct log_part){.start = start, .size = size};
	log->count++;
	log_total += (uint64_t)size;
	return true;
}

void log_recover(struct task_log *log)
{
	uint64_t sums[2];
	off_t complete;
	if (!log->count)
		return;
	struct log_part *part = &log->parts[log->count - 1];
	log->end = sum_part(log, part, sums, &complete);
	log_total -= (uint64_t)(part->size - complete);
	part->size = complete;
}
