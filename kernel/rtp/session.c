// SPDX-License-Identifier: GPL-2.0
/*
 * Sessions: the calls that start, pause, resume, move, stop and look at one.
 *
 * Each open file of the device can have one, which ends with the file. The cost of a session is
 * charged and limited: its number and its work to its user (user.c); its memory, some 700 bytes and
 * eight for each packet of a plan, and page cache that sending fills, to the memory control group
 * of the process that started it. The limits are parameters of the module, also
 * writable in /sys/module/pagewire_rtp/parameters; sessions there is their number. pacing.c sends
 * packets in time.
 */
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/kernel.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "session.h"

/* What close(2) waits for a turn of the worker; one from the page cache takes a thousandth. */
#define PWR_CLOSE_WAIT	(HZ / 20)

static_assert(sizeof(struct pagewire_rtp_start) == 112);
static_assert(sizeof(struct pagewire_rtp_seek) == 16);
static_assert(sizeof(struct pagewire_rtp_status) == 72);

/* Gives back all that a session has but its work, which finds nothing to do then. */
static void pwr_session_drop(struct pwr_session *session)
{
	WRITE_ONCE(session->state, PAGEWIRE_RTP_NO_SESSION);
	hrtimer_cancel(&session->timer);
	kvfree(session->plan);
	sockfd_put(session->socket);
	fput(session->file);
	put_cred(session->cred);
	mem_cgroup_put(session->memory);
	pwr_user_put(session->user);
}

/* Checks of START besides the request itself. */
static int pwr_start_check(const struct pagewire_rtp_start *start)
{
	const struct pagewire_rtp_send *send = &start->send;
	int error = pwr_request_check(send);

	if (error)
		return error;
	if (send->source != PAGEWIRE_RTP_FROM_FILE || send->header == PAGEWIRE_RTP_HEADER_CALLER)
		return -EINVAL;
	if (start->reserved || start->start_ns > KTIME_MAX || !start->wake_packets ||
	    start->wake_packets > PAGEWIRE_RTP_WAKE_PACKETS_MAX)
		return -EINVAL;
	if (send->plan)
		return start->interval_ns || start->clock_rate < PAGEWIRE_RTP_CLOCK_RATE_MIN ?
		       -EINVAL : 0;
	if (start->clock_rate || start->interval_ns < PAGEWIRE_RTP_INTERVAL_NS_MIN ||
	    start->interval_ns > PAGEWIRE_RTP_INTERVAL_NS_MAX)
		return -EINVAL;
	return 0;
}

/* Takes what the request names; on an error nothing is left taken. */
static int pwr_session_take(struct pwr_session *session, const struct pagewire_rtp_start *start)
{
	int error;

	session->file = pwr_request_file(&start->send);
	if (IS_ERR(session->file))
		return PTR_ERR(session->file);
	session->socket = pwr_request_socket(&start->send);
	if (IS_ERR(session->socket)) {
		error = PTR_ERR(session->socket);
		goto put_file;
	}
	session->plan = pwr_request_plan(&start->send);
	if (IS_ERR(session->plan)) {
		error = PTR_ERR(session->plan);
		goto put_socket;
	}
	error = 0;
	if (session->plan)
		error = pwr_plan_span_check(session->plan, start->send.packets, start->clock_rate);
	if (error)
		goto free_plan;
	session->user = pwr_user_take();
	if (IS_ERR(session->user)) {
		error = PTR_ERR(session->user);
		goto free_plan;
	}
	session->cred = get_current_cred();
	session->memory = get_mem_cgroup_from_mm(current->mm);
	return 0;
free_plan:
	kvfree(session->plan);
put_socket:
	sockfd_put(session->socket);
put_file:
	fput(session->file);
	return error;
}

static int pwr_session_start(struct pwr_session *session, const struct pagewire_rtp_start *start)
{
	ktime_t now = ktime_get();
	int error;

	if (session->state != PAGEWIRE_RTP_NO_SESSION)
		return -EBUSY;
	error = pwr_start_check(start);
	if (!error)
		error = pwr_session_take(session, start);
	if (error)
		return error;

	session->request = start->send;
	if (session->plan)
		session->request.timestamp = 0;
	session->interval_ns = start->interval_ns;
	session->clock_rate = start->clock_rate;
	session->wake_packets = start->wake_packets;
	session->next = (struct pwr_place){
		.offset = start->send.offset,
		.bytes_left = start->send.length,
	};
	memset(&session->status, 0, sizeof(session->status));
	pwr_pacing_run(session, max_t(ktime_t, start->start_ns, now));
	return 0;
}

static int pwr_session_pause(struct pwr_session *session)
{
	if (session->state == PAGEWIRE_RTP_RUNNING) {
		WRITE_ONCE(session->state, PAGEWIRE_RTP_PAUSED);
		hrtimer_try_to_cancel(&session->timer);
	}
	return session->state == PAGEWIRE_RTP_PAUSED ? 0 : -EINVAL;
}

static int pwr_session_resume(struct pwr_session *session)
{
	if (session->state == PAGEWIRE_RTP_ENDED)
		return -EINVAL;
	if (session->state != PAGEWIRE_RTP_RUNNING)
		pwr_pacing_run(session, ktime_get());
	return 0;
}

/* The place that a request to move names. */
static int pwr_session_place(const struct pwr_session *session,
			     const struct pagewire_rtp_seek *seek, struct pwr_place *place)
{
	const struct pagewire_rtp_send *request = &session->request;

	*place = (struct pwr_place){
		.offset = request->offset,
		.bytes_left = request->length,
	};
	if (!session->plan) {
		if (seek->packet || seek->offset < request->offset ||
		    seek->offset - request->offset >= request->length)
			return -EINVAL;
		place->bytes_left -= seek->offset - request->offset;
		place->offset = seek->offset;
		return 0;
	}
	if (seek->offset || seek->packet >= request->packets)
		return -EINVAL;
	while (place->packet < seek->packet) {
		place->offset += session->plan[place->packet].payload_bytes;
		place->bytes_left -= session->plan[place->packet].payload_bytes;
		place->packet++;
	}
	return 0;
}

static int pwr_session_seek(struct pwr_session *session, const struct pagewire_rtp_seek *seek)
{
	struct pwr_place place;
	int error;

	error = pwr_session_place(session, seek, &place);
	if (error)
		return error;
	session->next = place;
	session->request.timestamp = seek->timestamp;
	if (session->plan)
		session->request.timestamp -= session->plan[place.packet].timestamp;
	if (session->state == PAGEWIRE_RTP_RUNNING) {
		pwr_pacing_run(session, ktime_get());
	} else {
		session->error = 0;
		WRITE_ONCE(session->state, PAGEWIRE_RTP_PAUSED);
	}
	return 0;
}

static void pwr_session_status(const struct pwr_session *session,
			       struct pagewire_rtp_status *status)
{
	memset(status, 0, sizeof(*status));
	if (session->state == PAGEWIRE_RTP_NO_SESSION)
		return;
	*status = session->status;
	status->state = session->state;
	status->error = session->error;
	status->offset = session->next.offset;
	status->packet = session->next.packet;
	status->sequence = session->request.sequence;
	status->timestamp = session->request.timestamp;
	if (session->plan && session->next.bytes_left)
		status->timestamp += session->plan[session->next.packet].timestamp;
}

/* A call under the session's lock; START and SEEK come with what was copied from the caller. */
static int pwr_session_call(struct pwr_session *session, unsigned int command, const void *argument)
{
	if (command == PAGEWIRE_RTP_START)
		return pwr_session_start(session, argument);
	if (session->state == PAGEWIRE_RTP_NO_SESSION)
		return -ENOENT;
	switch (command) {
	case PAGEWIRE_RTP_PAUSE:
		return pwr_session_pause(session);
	case PAGEWIRE_RTP_RESUME:
		return pwr_session_resume(session);
	case PAGEWIRE_RTP_SEEK:
		return pwr_session_seek(session, argument);
	default:
		pwr_session_drop(session);
		return 0;
	}
}

/**
 * pwr_session_ioctl() - a call about a session
 * @session: of the open file
 * @command: PAGEWIRE_RTP_START to _STATUS; another is -ENOTTY
 * @argument: the caller's
 *
 * Return: 0 or an error, see the interface's header.
 */
long pwr_session_ioctl(struct pwr_session *session, unsigned int command, void __user *argument)
{
	union {
		struct pagewire_rtp_start start;
		struct pagewire_rtp_seek seek;
		struct pagewire_rtp_status status;
	} copy;
	int error;

	switch (command) {
	case PAGEWIRE_RTP_START:
	case PAGEWIRE_RTP_SEEK:
		if (copy_from_user(&copy, argument, _IOC_SIZE(command)))
			return -EFAULT;
		break;
	case PAGEWIRE_RTP_PAUSE:
	case PAGEWIRE_RTP_RESUME:
	case PAGEWIRE_RTP_STOP:
	case PAGEWIRE_RTP_STATUS:
		break;
	default:
		return -ENOTTY;
	}
	error = mutex_lock_interruptible(&session->lock);
	if (error)
		return error == -EINTR ? -ERESTARTSYS : error;
	if (command == PAGEWIRE_RTP_STATUS)
		pwr_session_status(session, &copy.status);
	else
		error = pwr_session_call(session, command, &copy);
	mutex_unlock(&session->lock);

	if (command == PAGEWIRE_RTP_STATUS &&
	    copy_to_user(argument, &copy.status, sizeof(copy.status)))
		return -EFAULT;
	return error;
}

/**
 * pwr_session_poll() - whether the session is over
 * @session: of the open file
 * @device: the open file
 * @table: who waits
 *
 * Return: EPOLLIN and EPOLLHUP when it is, EPOLLERR too when it failed.
 */
__poll_t pwr_session_poll(struct pwr_session *session, struct file *device,
			  struct poll_table_struct *table)
{
	poll_wait(device, &session->over, table);
	switch (READ_ONCE(session->state)) {
	case PAGEWIRE_RTP_ENDED:
		return EPOLLIN | EPOLLRDNORM | EPOLLHUP;
	case PAGEWIRE_RTP_FAILED:
		return EPOLLIN | EPOLLRDNORM | EPOLLHUP | EPOLLERR;
	default:
		return 0;
	}
}

/**
 * pwr_session_open() - what an open file of the device has
 *
 * Return: it, with no session in it yet; NULL without memory.
 */
struct pwr_session *pwr_session_open(void)
{
	struct pwr_session *session = kzalloc(sizeof(*session), GFP_KERNEL_ACCOUNT);

	if (!session)
		return NULL;
	mutex_init(&session->lock);
	init_waitqueue_head(&session->over);
	init_waitqueue_head(&session->idle);
	pwr_pacing_open(session);
	return session;
}

/* The end, with the lock held and nobody else to take it but the session's work. */
static void pwr_session_free(struct pwr_session *session)
{
	if (session->state != PAGEWIRE_RTP_NO_SESSION)
		pwr_session_drop(session);
	mutex_unlock(&session->lock);
	pwr_pacing_close(session);
	mutex_destroy(&session->lock);
	kfree(session);
}

/**
 * pwr_session_close_later() - close a session whose worker was busy when its file was closed
 * @session: nobody else's any more
 */
void pwr_session_close_later(struct pwr_session *session)
{
	mutex_lock(&session->lock);
	pwr_session_free(session);
}

/**
 * pwr_session_close() - the open file is gone, and so is its session
 * @session: of the open file
 *
 * A worker that reads from a file system that hangs has the lock for as long as that takes: then
 * this leaves the session to a worker that waits for it, and returns. Until that has come to its
 * end the session is counted for its user, and the module stays.
 */
void pwr_session_close(struct pwr_session *session)
{
	WRITE_ONCE(session->closing, true);
	if (wait_event_timeout(session->idle, mutex_trylock(&session->lock), PWR_CLOSE_WAIT))
		pwr_session_free(session);
	else
		pwr_pacing_close_later(session);
}
