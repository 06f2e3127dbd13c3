/* Reading of tasks' logs, by offset, and of what a former process left of them. */
#define _GNU_SOURCE
#include "hold_task_files.h"
#include "hold_task_log.h"

#include <fcntl.h>
#include <unistd.h>

#define BLOCK 4096 /* read for heads */

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

/* Passes over records that end at or before the wanted offset. False: the file has no record there. */
static bool find_record(int fd, const struct log_part *part, struct log_place *place, uint8_t *output, uint64_t *size)
{
	uint8_t block[BLOCK];
	for (;;) {
		ssize_t got = place->at < part->size ? pread(fd, block, sizeof block, place->at) : 0;
		if (got < HEAD)
			return false;
		for (const uint8_t *head = block; head + HEAD <= block + got;) {
			*output = head[0];
			*size = decode_size(head);
			if (!*output || *output > HOLE)
				return false;
			if (place->begin + *size > place->offset)
				return true;
			off_t next = HEAD + (*output == HOLE ? 0 : (off_t)*size);
			place->at += next;
			place->begin += *size;
			if (next > block + got - head)
				break;
			head += next;
		}
	}
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
static size_t read_part(const struct task_log *log, int number, struct log_place *place, uint8_t *data, size_t limit, uint8_t *output)
{
	uint64_t size = 0;
	ssize_t got = 0;
	int fd = task_file_open(log->task, &log->parts[number].start, O_RDONLY);
	bool found = fd >= 0 && find_record(fd, &log->parts[number], place, output, &size);
	if (found && *output == HOLE) {
		place->offset = place->begin + size;
	} else if (found) {
		uint64_t passed = place->offset - place->begin, left = size - passed;
		got = pread(fd, data, left < limit ? left : limit, place->at + HEAD + (off_t)passed);
	}
	if (fd >= 0)
		close(fd);
	if (got <= 0 && !(found && *output == HOLE))
		place->offset = part_end(log, number);
	return got > 0 ? (size_t)got : 0;
}

size_t log_read(const struct task_log *log, struct log_place *place, uint8_t *data, size_t limit, uint8_t *output, uint64_t *from)
{
	while (log->count && place->offset < log->end) {
		size_t size = read_part(log, find_part(log, place), place, data, limit, output);
		*from = place->offset;
		place->offset += size;
		if (size)
			return size;
	}
	if (place->offset < log->end)
		place->offset = log->end;
	return 0;
}

/* From a part's records to its end, or to where they are not complete. */
static uint64_t sum_part(const struct task_log *log, const struct log_part *part, uint64_t sums[2], off_t *complete)
{
	struct log_place place = {.offset = part->start, .begin = part->start};
	uint64_t size;
	uint8_t output;
	int fd = task_file_open(log->task, &part->start, O_RDONLY);
	*complete = 0;
	while (fd >= 0 && find_record(fd, part, &place, &output, &size)) {
		off_t next = place.at + HEAD + (output == HOLE ? 0 : (off_t)size);
		if (next > part->size)
			break;
		if (output != HOLE)
			sums[output - 1] += size;
		place.offset = place.begin + size;
		*complete = next;
	}
	if (fd >= 0)
		close(fd);
	return place.offset;
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
	int place = log->count;
	off_t size = task_file_size(log->task, &start);
	if (log->count == LOG_FILES || size < 0)
		return false;
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
