/* Reading of tasks' logs, by offset, and of what a former process left of them. */
#define _GNU_SOURCE
#include "hold_task_files.h"
#include "hold_task_log.h"

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

/* The first record with something that is wanted. The bytes of each output in those before it are added to SUMS. False: the
 * file has none. */
static bool find_record(int fd, const struct log_part *part, struct log_place *place, struct log_record *found, uint64_t skip[2], uint64_t sums[2])
{
	static uint8_t block[LARGE_BLOCK];
	for (size_t wanted = BLOCK; part->size - place->at >= HEAD; wanted = sizeof block) {
		off_t rest = part->size - place->at;
		ssize_t got = pread(fd, block, rest < (off_t)wanted ? (size_t)rest : wanted, place->at);
		if (got < HEAD)
			return false;
		for (const uint8_t *head = block; block + got - head >= HEAD;) {
			found->output = head[0];
			if (!decode_head(part, place, head, &found->size))
				return false;
			if (!passes(place, found->output, found->size, skip))
				return true;
			bool is_hole = found->output == HOLE;
			if (sums && !is_hole)
				sums[found->output - 1] += found->size;
			off_t next = HEAD + (is_hole ? 0 : (off_t)found->size);
			place->at += next;
			place->begin += found->size;
			if (next > block + got - head)
				break;
			head += next;
		}
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
	struct log_record record;
	const struct log_part *part = &log->parts[number];
	ssize_t got = 0;
	int fd = task_file_open(log->task, &part->start, O_RDONLY);
	if (fd >= 0 && find_record(fd, part, place, &record, skip, NULL)) {
		uint64_t passed = place->offset - place->begin, left = record.size - passed;
		got = pread(fd, piece->data, left < piece->limit ? left : piece->limit, place->at + HEAD + (off_t)passed);
		piece->output = record.output;
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
	struct log_record none;
	int fd = task_file_open(log->task, &part->start, O_RDONLY);
	if (fd >= 0) {
		find_record(fd, part, &place, &none, NULL, sums);
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
