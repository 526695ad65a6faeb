// SPDX-License-Identifier: GPL-2.0
/*
 * Pacing: the timer of a session and the worker that sends what is due.
 *
 * The timer is set to the absolute time of the next packet and queues work, because sending may
 * sleep; the worker sends all that is due, sets the timer again and is gone. Times are counted from
 * where the session was started, resumed or moved, never from the last wake: nothing drifts.
 *
 * Cost for each wake: an interrupt of the timer, a switch to a worker and back, and a splice of
 * just the pages that are due. The workers belong to unbound queues, so that hundreds of sessions
 * do not need as many threads. One that waits for its disk holds up no other: a queue runs as many
 * at a time as there may be sessions (pwr_pacing_sessions_max()). There are two queues, of high and
 * of normal priority; which of them a session's turns go to, and whether they wait, is the account
 * of its user's to say (user.c). A worker acts with the credentials of who started the session.
 *
 * Sources: Documentation/timers/hrtimers.rst, Documentation/core-api/workqueue.rst.
 */
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/memcontrol.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/socket.h>
#include <linux/version.h>

#include "session.h"

/* After a full send buffer or queue: long enough for a device to drain some packets. */
#define PWR_RETRY_NS		NSEC_PER_MSEC
/* Overdue packets sent in one turn, before others have theirs. */
#define PWR_TURN_PACKETS_MAX	PAGEWIRE_RTP_WAKE_PACKETS_MAX

static struct workqueue_struct *pwr_workers_high;
static struct workqueue_struct *pwr_workers_normal;
static struct workqueue_struct *pwr_closers;

static unsigned int pwr_place_bytes(const struct pwr_session *session,
				    const struct pwr_place *place)
{
	if (session->plan)
		return session->plan[place->packet].payload_bytes;
	return min_t(u64, place->bytes_left, session->request.payload_bytes);
}

/**
 * pwr_place_advance() - from a packet to the next
 * @session: with the plan, or the size and interval of packets
 * @place: a packet that is not the end; may come to be the end, where no bytes are left
 */
void pwr_place_advance(const struct pwr_session *session, struct pwr_place *place)
{
	unsigned int bytes = pwr_place_bytes(session, place);
	const struct pagewire_rtp_packet *plan = session->plan;
	u64 ticks;

	place->offset += bytes;
	place->bytes_left -= bytes;
	if (!plan) {
		place->due = ktime_add_ns(place->due, session->interval_ns);
		return;
	}
	place->packet++;
	if (!place->bytes_left)
		return;
	/* Timestamps wrap; what is less than half a wrap away is so in its direction. */
	place->ticks += (s32)(plan[place->packet].timestamp - plan[place->packet - 1].timestamp);
	place->ticks_max = max(place->ticks, place->ticks_max);
	ticks = place->ticks_max - session->base_ticks;
	place->due = ktime_add_ns(session->base,
				  mul_u64_u32_div(ticks, NSEC_PER_SEC, session->clock_rate));
}

/**
 * pwr_plan_span_check() - whether a plan lasts no longer than can be reckoned with
 * @plan: checked plan
 * @packets: in it, at least 1
 * @clock_rate: Hz, not 0
 *
 * Return: 0, or -EINVAL.
 */
int pwr_plan_span_check(const struct pagewire_rtp_packet *plan, u32 packets, u32 clock_rate)
{
	s64 ticks = 0, least = 0, greatest = 0;
	u32 index;

	for (index = 1; index < packets; index++) {
		ticks += (s32)(plan[index].timestamp - plan[index - 1].timestamp);
		least = min(least, ticks);
		greatest = max(greatest, ticks);
	}
	return greatest - least > (s64)clock_rate * PAGEWIRE_RTP_PLAN_SECONDS_MAX ? -EINVAL : 0;
}

/* Packets to send together at @now, and the payload in them: what is due and what may go along. */
static u32 pwr_session_batch(const struct pwr_session *session, ktime_t now, u64 *bytes)
{
	struct pwr_place place = session->next;
	u32 packets = 0;

	while (place.bytes_left && packets < PWR_TURN_PACKETS_MAX &&
	       (packets < session->wake_packets || ktime_compare(place.due, now) <= 0)) {
		pwr_place_advance(session, &place);
		packets++;
	}
	*bytes = session->next.bytes_left - place.bytes_left;
	return packets;
}

/* Moves on over packets that were handed over at @now. */
static void pwr_session_sent(struct pwr_session *session, u32 packets, ktime_t now)
{
	struct pagewire_rtp_status *status = &session->status;
	struct pagewire_rtp_send *request = &session->request;

	status->packets += packets;
	request->sequence += packets;
	if (!session->plan)
		request->timestamp += packets * request->timestamp_step;
	while (packets--) {
		s64 lateness_ns = ktime_to_ns(ktime_sub(now, session->next.due));
		u64 bytes_left = session->next.bytes_left;

		if (lateness_ns > (s64)PAGEWIRE_RTP_LATE_NS)
			status->late_packets++;
		if (lateness_ns > (s64)status->lateness_ns_max)
			status->lateness_ns_max = lateness_ns;
		pwr_place_advance(session, &session->next);
		status->bytes += bytes_left - session->next.bytes_left;
	}
}

static void pwr_session_over(struct pwr_session *session, u32 state, int error)
{
	session->error = error;
	WRITE_ONCE(session->state, state);
	wake_up_poll(&session->over, EPOLLIN | EPOLLHUP);
}

/* Sends what is due at @now, if anything is. Returns 0, or an error when nothing was sent. */
static int pwr_session_send(struct pwr_session *session, ktime_t now)
{
	struct pagewire_rtp_send request = session->request;
	const struct pagewire_rtp_packet *plan = session->plan;
	struct pwr_run run;
	u32 packets;
	int error;

	packets = pwr_session_batch(session, now, &request.length);
	if (plan) {
		plan += session->next.packet;
		request.packets = packets;
	}
	pwr_run_open(&run, session->socket, &request, plan);
	run.message_flags |= MSG_DONTWAIT;
	run.timestamp = request.timestamp;
	run.whole_only = true;
	error = pwr_send_file(&run, session->file, session->next.offset, request.length);
	pwr_session_sent(session, run.sent_packets, now);
	if (!error && !run.sent_packets)
		error = -ENODATA;
	return error;
}

/* One turn of a session, at @now. Returns when the next is wanted, or 0 when none is. */
static ktime_t pwr_session_turn(struct pwr_session *session, ktime_t now)
{
	ktime_t until = pwr_user_waits(session->user, now);
	int error;

	/* A timer that was cancelled too late, or set for another time since. */
	if (ktime_compare(session->next.due, now) > 0)
		return session->next.due;
	if (until) {
		session->status.retries++;
		return until;
	}
	error = pwr_session_send(session, now);
	switch (error) {
	case 0:
		break;
	case -EAGAIN:
	case -ENOBUFS:
	case -ENOMEM:
		session->status.retries++;
		return ktime_add_ns(ktime_get(), PWR_RETRY_NS);
	default:
		pwr_session_over(session, PAGEWIRE_RTP_FAILED, -error);
		return 0;
	}
	if (!session->next.bytes_left) {
		pwr_session_over(session, PAGEWIRE_RTP_ENDED, 0);
		return 0;
	}
	return max_t(ktime_t, session->next.due, ktime_add_ns(now, PAGEWIRE_RTP_WAKE_NS_MIN));
}

/* The priority is settled here: the timer runs in an interrupt and asks no account. */
static void pwr_session_wake(struct pwr_session *session, ktime_t at)
{
	WRITE_ONCE(session->beyond, pwr_user_beyond(session->user));
	hrtimer_start(&session->timer, at, HRTIMER_MODE_ABS);
}

/* A turn, with the rights of who started the session and at the cost of the same. */
static void pwr_session_turn_charged(struct pwr_session *session)
{
	struct mem_cgroup *memory = set_active_memcg(session->memory);
	const struct cred *own = override_creds(session->cred);
	ktime_t now = ktime_get(), next;
	struct pwr_turn turn;

	pwr_turn_begin(&turn, now);
	next = pwr_session_turn(session, now);
	pwr_user_charge(session->user, &turn);
	revert_creds(own);
	set_active_memcg(memory);
	if (next)
		pwr_session_wake(session, next);
}

static void pwr_session_work(struct pwr_session *session)
{
	mutex_lock(&session->lock);
	if (session->state == PAGEWIRE_RTP_RUNNING && !READ_ONCE(session->closing))
		pwr_session_turn_charged(session);
	mutex_unlock(&session->lock);
	/* Who closes the session waits for its works after it has the lock: it is still there. */
	if (wq_has_sleeper(&session->idle))
		wake_up(&session->idle);
}

static void pwr_session_work_high(struct work_struct *work)
{
	pwr_session_work(container_of(work, struct pwr_session, work_high));
}

static void pwr_session_work_normal(struct work_struct *work)
{
	pwr_session_work(container_of(work, struct pwr_session, work_normal));
}

/* The reference is of pwr_pacing_close_later(); unloading waits for the rest of this function. */
static void pwr_session_work_close(struct work_struct *work)
{
	pwr_session_close_later(container_of(work, struct pwr_session, work_close));
	module_put(THIS_MODULE);
}

static enum hrtimer_restart pwr_session_timer(struct hrtimer *timer)
{
	struct pwr_session *session = container_of(timer, struct pwr_session, timer);

	if (READ_ONCE(session->beyond))
		queue_work(pwr_workers_normal, &session->work_normal);
	else
		queue_work(pwr_workers_high, &session->work_high);
	return HRTIMER_NORESTART;
}

/**
 * pwr_pacing_open() - make timer and work
 * @session: just allocated
 */
void pwr_pacing_open(struct pwr_session *session)
{
	INIT_WORK(&session->work_high, pwr_session_work_high);
	INIT_WORK(&session->work_normal, pwr_session_work_normal);
	INIT_WORK(&session->work_close, pwr_session_work_close);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(&session->timer, pwr_session_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
#else
	hrtimer_init(&session->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	session->timer.function = pwr_session_timer;
#endif
}

/**
 * pwr_pacing_run() - have the next packet sent
 * @session: with place and times of the next packet, under its lock
 * @at: time of that packet; later ones follow from it
 */
void pwr_pacing_run(struct pwr_session *session, ktime_t at)
{
	session->next.due = at;
	session->base = at;
	session->base_ticks = session->next.ticks_max;
	session->error = 0;
	WRITE_ONCE(session->state, PAGEWIRE_RTP_RUNNING);
	pwr_session_wake(session, at);
}

/**
 * pwr_pacing_close() - wait for timer and worker
 * @session: without its lock, in a state in which the worker does not set the timer
 */
void pwr_pacing_close(struct pwr_session *session)
{
	hrtimer_cancel(&session->timer);
	cancel_work_sync(&session->work_high);
	cancel_work_sync(&session->work_normal);
}

/**
 * pwr_pacing_close_later() - have pwr_session_close_later() called where waiting harms nobody
 * @session: nobody else's any more
 */
void pwr_pacing_close_later(struct pwr_session *session)
{
	__module_get(THIS_MODULE);
	queue_work(pwr_closers, &session->work_close);
}

/**
 * pwr_pacing_sessions_max() - sessions that may all wait at once and hold up no other
 *
 * Each queue runs WQ_MAX_ACTIVE works at a time, from 6.9 on divided among memory nodes; a session
 * has one in each queue at most.
 *
 * Return: how many.
 */
unsigned int pwr_pacing_sessions_max(void)
{
	return WQ_MAX_ACTIVE / num_online_nodes();
}

int pwr_pacing_init(void)
{
	pwr_workers_high = alloc_workqueue("pagewire_rtp_high", WQ_UNBOUND | WQ_HIGHPRI,
					   WQ_MAX_ACTIVE);
	pwr_workers_normal = alloc_workqueue("pagewire_rtp", WQ_UNBOUND, WQ_MAX_ACTIVE);
	pwr_closers = alloc_workqueue("pagewire_rtp_close", WQ_UNBOUND, WQ_MAX_ACTIVE);
	if (pwr_workers_high && pwr_workers_normal && pwr_closers)
		return 0;
	pwr_pacing_exit();
	return -ENOMEM;
}

void pwr_pacing_exit(void)
{
	struct workqueue_struct *queues[] = { pwr_closers, pwr_workers_normal, pwr_workers_high };
	int index;

	for (index = 0; index < ARRAY_SIZE(queues); index++)
		if (queues[index])
			destroy_workqueue(queues[index]);
}
