/*
 * A model of the rules of package overlay (doc.go). N ranks begin with the links
 * of Join, a star around rank 0. check.sh lists the configurations and the
 * broken variants.
 *
 * Each rank wants one link, to the first rank after it that answers. A Node
 * wants O(log n) links; with 4 ranks these would be all links, and no fact would
 * have to be forwarded. There is at most one link between two ranks. A link is
 * a FIFO channel in each direction. UP is the acceptance of a dial, END the end
 * of the connection.
 *
 * The model has no times, with one exception: a step that waits for missingFor
 * or decideAfter is disabled while messages, links or departures are in transit
 * (quiet). The model has no silent hosts.
 */
#ifndef N
#define N 3
#endif
#ifndef Q
#define Q 12                    /* messages that a link holds; more is an error */
#endif
/* How often each may happen. */
#ifndef KILLS
#define KILLS 0                 /* a rank ends at any step, also while it forwards a loss */
#endif
#ifndef EXITS
#define EXITS 0                 /* a rank exits because it learns of a loss */
#endif
#ifndef STOPS
#define STOPS 0                 /* a rank is stopped; it may go on at any time, unless STAY is defined */
#endif
#ifndef LEAVES
#define LEAVES 0                /* a rank leaves */
#endif
#ifndef CUTS
#define CUTS 0                  /* a connection between two running ranks ends */
#endif
#ifndef REPORTS
#define REPORTS 0               /* a rank reports a cause of the group's failure */
#endif
#ifndef SEES
#define SEES 0                  /* a rank finds outside of the control channel that a rank has exited, and reports this */
#endif
#ifndef DOUBTS
#define DOUBTS 0                /* a running rank does not answer in time */
#endif

/* To reduce a configuration: the rank that is killed, leaves, reports or is stopped. */
#ifndef VICTIM
#define VICTIM me
#endif
#ifndef LEAVER
#define LEAVER me
#endif
#ifndef REPORTER
#define REPORTER me
#endif
#ifdef EVEN
#define SLEEPER (me % 2 == 0)
#else
#define SLEEPER true
#endif

#define bit(r) (1 << (r))
#define has(m, r) (((m) >> (r)) & 1)
#define at(f, t) ((f) * N + (t))
#define FACTS (N + 1)
#define ALL ((1 << N) - 1)

/* Messages: kind * 8 + rank. LOST, LEFT and CAUSE are facts. */
#define UP 8                    /* the dial is accepted, and the other's STATE begins */
#define HELLO 16                /* the dialer's STATE begins */
#define LOST 24
#define LEFT 32
#define BYE 40
#define NOTED 48
#define REPORT 56
#define CAUSE 64
#define DROP 72
#define END 80
#define NOTED0 88               /* acknowledges a BYE; the sender cannot pass the departure on */
chan c[N * N] = [Q] of { byte };

/* A REPORT or CAUSE with rank r: rank r has reported a failure, or with SEES, rank r is lost. */

/* The state of the processes: sets of ranks. */
byte dead, gone, stopped, leaving;   /* gone: it has left in good order */

/* The knowledge of each rank: sets of ranks. */
byte lostk[N], leftk[N];
byte facts[N * FACTS];
byte nfacts[N];
byte cause[N], pend[N];              /* the rank that reported it, or with SEES the lost rank, plus 1 */
byte unsaid[N];
byte lnk[N], made[N], greeted[N], dialing[N], suspected[N];
byte redial[N], broken[N], unanswered[N], missing[N];
byte owed[N * N], noted[N];
byte held[N * N];                    /* the first rank acknowledges a goodbye of the second when it has a link */
byte waits[N];                       /* losses on which a rank acts when it has a link */
byte uncovered[N];                   /* departures announced on the links after the last goodbye */
byte cover;                          /* leaving ranks that have acknowledged a goodbye and must say goodbye again */
byte want[N];                        /* the rank to which it wants a link; N: none */

/* Used by the properties only. */
byte why[N];                         /* the loss because of which a rank exited, plus 1 */
byte knew[N];                        /* the ranks that have learned that a rank has left */
byte alone;                          /* ranks that left when no other ran */
byte guessed;                        /* ranks that were found missing, and so lost */
byte torn;                           /* ranks of which a connection was cut */
byte nosend[N];                      /* peers to which the connection is cut, and this rank has not noticed */
bool fault, over;
byte kills = KILLS, exits = EXITS, stops = STOPS, leaves = LEAVES, cuts = CUTS, reports = REPORTS, doubts = DOUBTS, sees = SEES;

#define runs(r) (!has(dead | stopped, r))
#define present(p, r) (!has(lostk[p] | leftk[p], r))
#define answers(p, r) (present(p, r) && !has(suspected[p], r))
#define unresolved(p) (redial[p] | broken[p] | unanswered[p] | missing[p])
#define others(p) (ALL & ~bit(p))
#define answering(p) (others(p) & ~(lostk[p] | leftk[p] | suspected[p]))

/* No running rank can know that q has left. */
#define unknowable(q) (has(alone, q) || has(torn, q) || (knew[q] != 0 && (knew[q] & ~((dead & ~gone) | stopped)) == 0))

/* p does not leave, other ranks answer, and p has a link with none of them */
#define isolated(p) (!has(leaving, p) && answering(p) != 0 && (lnk[p] & answering(p)) == 0)

/* quiet: no message, departure, link or redial is in progress at a running rank. */
#define idle(p) (unsaid[p] == 0 && redial[p] == 0 && (broken[p] & ~unanswered[p]) == 0 && (want[p] == N || has(lnk[p], want[p])))
#define in3(p, a, b) (empty(c[at(a, p)]) && empty(c[at(b, p)]))
#if N == 3
#define still(p) (!runs(p) || (idle(p) && in3(p, (p + 1) % N, (p + 2) % N)))
#define quiet (still(0) && still(1) && still(2))
#else
#define still(p) (!runs(p) || (idle(p) && in3(p, (p + 1) % N, (p + 2) % N) && empty(c[at((p + 3) % N, p)])))
#define quiet (still(0) && still(1) && still(2) && still(3))
#endif

inline put(f, t, m) {
	if
	:: has(dead, t) || has(nosend[f], t)
	:: else -> assert(nfull(c[at(f, t)])); c[at(f, t)]!(m)
	fi
}

/* updates the wanted link of p after a change */
inline rewant(p) {
	want[p] = N;
	w = 1;
	do
	:: w < N && !answers(p, (p + w) % N) -> w++
	:: w < N && answers(p, (p + w) % N) -> want[p] = (p + w) % N; break
	:: w >= N -> break
	od;
	w = 0;
	/* a leaving rank makes links only if it has no useful link */
	if
	:: has(leaving, p) && (lnk[p] & (answering(p) | noted[p])) != 0 -> want[p] = N
	:: else
	fi
}

/* sends the State of f to t, after the message first */
inline share(f, t, first) {
	put(f, t, first);
#ifndef NOSTATE
	k = 0;
	do
	:: k < nfacts[f] -> put(f, t, facts[f * FACTS + k]); k++
	:: k >= nfacts[f] -> break
	od;
	k = 0;
	if :: pend[f] != 0 -> put(f, t, REPORT + pend[f] - 1) :: else fi;
#endif
	if :: has(leaving, f) -> owed[at(f, t)]++; put(f, t, BYE) :: else fi
}

inline remember(p, m) { facts[p * FACTS + nfacts[p]] = m; nfacts[p]++ }

/* records that the fate of q is known */
inline settle(p, q) {
	redial[p] = redial[p] & ~bit(q);
	broken[p] = broken[p] & ~bit(q);
	unanswered[p] = unanswered[p] & ~bit(q);
	missing[p] = missing[p] & ~bit(q);
	suspected[p] = suspected[p] & ~bit(q)
}

/* me sends m on its links, but not to from; if cut is set, it ends somewhere on the way */
inline flood(m, from) {
	i = 0;
	do
	:: i < N && has(lnk[me], i) && i != from ->
		if
		:: put(me, i, m); i++
		:: dying -> i = N
		fi
	:: i < N && !(has(lnk[me], i) && i != from) -> i++
	:: i >= N -> break
	od;
	i = 0
}

#ifdef OVERCOVER
#define flushes(p) (unsaid[p] != 0)
#else
#define flushes(p) (unsaid[p] != 0 || has(leaving & cover, p))
#endif

inline flush() {
	if
	:: flushes(me) ->
		uncovered[me] = uncovered[me] | unsaid[me];
		if :: has(leaving & cover, me) -> uncovered[me] = 0 :: else fi;
		i = 0;
		do
		:: i < N ->
			if
			:: has(lnk[me], i) && present(me, i) ->
				j = 0;
				do
				:: j < N && has(unsaid[me], j) -> put(me, i, LEFT + j); j++
				:: j < N && !has(unsaid[me], j) -> j++
				:: j >= N -> break
				od;
				j = 0;
				if :: has(leaving & cover, me) -> owed[at(me, i)]++; put(me, i, BYE) :: else fi
			:: else
			fi;
			i++
		:: i >= N -> break
		od;
		i = 0;
		cover = cover & ~bit(me);
		unsaid[me] = 0
	:: else
	fi
}

/* the process p ends */
inline die(p) {
	dead = dead | bit(p);
	stopped = stopped & ~bit(p);
	i = 0;
	do
	:: i < N ->
		if :: i != p && has(lnk[i] | dialing[i], p) -> put(p, i, END) :: else fi;
		do
		:: nempty(c[at(i, p)]) -> c[at(i, p)]?_
		:: empty(c[at(i, p)]) -> break
		od;
		owed[at(p, i)] = 0;
		held[at(p, i)] = 0; held[at(i, p)] = 0;
		i++
	:: i >= N -> break
	od;
	i = 0;
	cover = cover & ~bit(p);
	do
	:: i < nfacts[p] -> facts[p * FACTS + i] = 0; i++
	:: i >= nfacts[p] -> break
	od;
	i = 0;
	nfacts[p] = 0; lostk[p] = 0; leftk[p] = 0; cause[p] = 0; pend[p] = 0; unsaid[p] = 0; uncovered[p] = 0;
	lnk[p] = 0; made[p] = 0; greeted[p] = 0; dialing[p] = 0; suspected[p] = 0; waits[p] = 0;
	redial[p] = 0; broken[p] = 0; unanswered[p] = 0; missing[p] = 0;
	noted[p] = 0; nosend[p] = 0; want[p] = N
}

/* me may exit because of the loss of x */
inline react(x) {
	if
	:: true
	:: exits > 0 && !over && !dying && !has(dead | leaving, me) -> exits--; why[me] = x + 1; die(me)
	fi
}

/* me may exit because of the loss of x now, or when it has a link */
inline act(x) {
	if
#ifndef ACTALONE
	:: isolated(me) -> waits[me] = waits[me] | bit(x)
	:: !isolated(me) -> react(x)
#else
	:: react(x)
#endif
	fi
}

/* x exited because of no loss, or me knows that loss, or the decision that names it. A connection that is cut just then can leave a
 * rank with nothing but new links, on which neither has said anything. */
#define ordered(x) (why[x] == 0 || why[x] - 1 == me || (SEES > 0 && cause[me] == why[x]) || has(lostk[me], why[x] - 1) || has(torn, x) || (torn != 0 && has(guessed, x)))

inline learnLost(x, from) {
	if
	:: x != me && present(me, x) ->
		/* (a) no rank that runs or has left in good order is taken for lost */
		assert(has(dead, x) && (!has(gone, x) || unknowable(x)));
		/* (b) the cause is known before a rank that exited because of it */
		assert(ordered(x));
		lostk[me] = lostk[me] | bit(x);
		settle(me, x);
		remember(me, LOST + x);
#ifdef ACTFIRST
		react(x);
#endif
		if :: true :: kills > 0 && !over && !has(dead, me) && me == VICTIM -> kills--; dying = true fi;
		flood(LOST + x, from);
		if
		:: dying -> die(me); dying = false
		:: else ->
			flush();
#ifndef ACTFIRST
			act(x)
#endif
		fi
	:: else
	fi
}

inline learnLeft(x) {
	if
	:: x != me && present(me, x) ->
		leftk[me] = leftk[me] | bit(x);
		knew[x] = knew[x] | bit(me);
		settle(me, x);
		unsaid[me] = unsaid[me] | bit(x);
		remember(me, LEFT + x)
	:: else
	fi
}

inline learnCause(r, from) {
	if
	:: cause[me] == 0 ->          /* (d) the first one that it learns */
#if SEES > 0
		assert(lostk[me] != 0 || ordered(r));         /* (b) for what it learns first */
#endif
		cause[me] = r + 1;
		pend[me] = 0;
		remember(me, CAUSE + r);
		flood(CAUSE + r, from);
		flush();
#if SEES > 0
		act(r)
#endif
	:: else
	fi
}

/* no rank before me answers */
#define coordinator (!isolated(me) && (answering(me) & (bit(me) - 1)) == 0)

/* me knows that the rank of a report is lost or has left, or has received everything from it */
#if SEES > 0 && !defined(UNORDERED)
#define confirmed(r) (!present(me, r) || has(broken[me], r))
#else
#define confirmed(r) true
#endif

inline report(r, from) {
	if
	:: cause[me] != 0 && from != me && has(lnk[me], from) -> put(me, from, CAUSE + cause[me] - 1)
	:: cause[me] == 0 && pend[me] == 0 ->
		pend[me] = r + 1;
		flood(REPORT + r, from);
		if :: coordinator && confirmed(r) -> decided = r :: else fi
	:: else
	fi
}

inline unlink(p, q) {
	held[at(p, q)] = 0;
	lnk[p] = lnk[p] & ~bit(q);
	made[p] = made[p] & ~bit(q);
	nosend[p] = nosend[p] & ~bit(q);
	owed[at(p, q)] = 0
}

inline linkUp(p, q) {
#ifndef OLDGREETING
	greeted[p] = greeted[p] & ~bit(q);
#endif
	lnk[p] = lnk[p] | bit(q);
	dialing[p] = dialing[p] & ~bit(q);
	settle(p, q)
}

inline linkDown(q) {
	if
	:: has(lnk[me], q) ->
		unlink(me, q);
		if
		:: !present(me, q)
		:: present(me, q) && has(leaving, me) -> suspected[me] = suspected[me] | bit(q)
		:: present(me, q) && !has(leaving, me) ->
#ifdef NOREDIAL
			found = q
#else
			if :: has(greeted[me], q) -> broken[me] = broken[me] | bit(q) :: else fi;
			redial[me] = redial[me] | bit(q)
#endif
		fi;
		greeted[me] = greeted[me] & ~bit(q)
	:: else
	fi
}

inline receiveBye(q) {
	/* one more rank is notified before the goodbye is acknowledged */
	j = 1;
	do
	:: j < N && (me + j) % N != q && has(lnk[me], (me + j) % N) && answers(me, (me + j) % N) ->
		if :: present(me, q) -> put(me, (me + j) % N, LEFT + q) :: else fi;
		break
	:: j < N && !((me + j) % N != q && has(lnk[me], (me + j) % N) && answers(me, (me + j) % N)) -> j++
	:: j >= N -> break
	od;
	learnLeft(q);
	if
	:: !has(lnk[me], q)
#ifndef NOCOVER
	:: has(lnk[me], q) && has(leaving, me) && (answering(me) & ~bit(q)) != 0 && j == N -> put(me, q, NOTED0)
	:: has(lnk[me], q) && has(leaving, me) && (answering(me) & ~bit(q)) != 0 && j < N ->
		if
#ifdef OVERCOVER
		:: true ->
#else
		:: has(unsaid[me] | uncovered[me], q) ->
#endif
			cover = cover | bit(me);
			noted[me] = 0
#ifndef OVERCOVER
		:: else
#endif
		fi;
		put(me, q, NOTED)
	:: has(lnk[me], q) && !(has(leaving, me) && (answering(me) & ~bit(q)) != 0) ->
#else
	:: has(lnk[me], q) ->
#endif
		/* a rank without another link makes one before it acknowledges */
		if
#ifndef NOHOLD
		:: isolated(me) -> held[at(me, q)]++
		:: !isolated(me) -> put(me, q, NOTED)
#else
		:: put(me, q, NOTED)
#endif
		fi
	fi;
	j = 0
}

/* me has another link, or needs none any more */
inline release(q) {
	do
	:: held[at(me, q)] > 0 -> held[at(me, q)]--; if :: has(lnk[me], q) -> put(me, q, NOTED) :: else fi
	:: held[at(me, q)] == 0 -> break
	od;
	if
	:: has(waits[me], q) -> waits[me] = waits[me] & ~bit(q); react(q)
	:: else
	fi
}

inline receive(q) {
	c[at(q, me)]?m;
	if :: m != END -> suspected[me] = suspected[me] & ~bit(q) :: else fi;
	x = m & 7;
	if
	:: m == UP -> linkUp(me, q); made[me] = made[me] | bit(q); greeted[me] = greeted[me] | bit(q); share(me, q, HELLO)
	:: m == HELLO -> greeted[me] = greeted[me] | bit(q)
	:: m >= LOST && m < LEFT -> found = x; source = q
	:: m >= LEFT && m < BYE -> learnLeft(x)
	:: m == BYE -> receiveBye(q)
	:: m == NOTED ->
		if :: owed[at(me, q)] > 0 -> owed[at(me, q)]-- :: else fi;
		/* the last goodbye comes after all departures that this rank has acknowledged */
		if :: owed[at(me, q)] == 0 && !has(cover, me) -> noted[me] = noted[me] | bit(q) :: else fi
	:: m == NOTED0 ->
		if :: owed[at(me, q)] > 0 -> owed[at(me, q)]-- :: else fi
	:: m >= REPORT && m < CAUSE -> report(x, q)
	:: m >= CAUSE && m < DROP -> decided = x; source = q
	:: m == DROP -> unlink(me, q)
	:: m == END -> linkDown(q)
	fi;
	m = 0; x = 0
}

/* me can dial q, and the dial changes the state */
#define dials(q) (!has(lnk[me] | dialing[me], q) && present(me, q) && \
	(want[me] == (q) || (has(unresolved(me), q) && !has(leaving, me))) && \
	((has(dead, q) && (!has(missing[me], q) || want[me] == (q))) || (has(stopped, q) && !has(unanswered[me], q)) || \
	(runs(q) && !has(lnk[q] | dialing[q], me))))

inline dial(q) {
	redial[me] = redial[me] & ~bit(q);
	if
	:: runs(q) ->
		linkUp(q, me);
		share(q, me, UP);
		rewant(q);
		dialing[me] = dialing[me] | bit(q)
	:: has(stopped, q) ->
		unanswered[me] = unanswered[me] | bit(q);
		suspected[me] = suspected[me] | bit(q)
	:: has(dead, q) ->
		suspected[me] = suspected[me] | bit(q);
		if
		:: has(leaving, me)
		:: !has(leaving, me) && has(broken[me], q) -> found = q
		:: !has(leaving, me) && !has(broken[me], q) -> missing[me] = missing[me] | bit(q)
		fi
	fi
}

/* me can notice that q does not answer, or answers again */
#define asked(q) (has(lnk[me], q) && answers(me, q) && (want[me] == (q) || nempty(c[at(me, q)])))
#ifdef NOSUSPECT
#define doubt(q) false
#else
#define doubt(q) (asked(q) && has(stopped, q))
#endif
#define hear(q) (has(suspected[me] & lnk[me], q) && runs(q) && empty(c[at(me, q)]) && present(me, q) && has(lnk[q], me))

/* a link that neither side wants */
#define surplus(q) (has(made[me], q) && answers(me, q) && want[me] != N && want[me] != (q) && has(lnk[me], want[me]) && \
	(me + N - (q)) % N != 1 && !has(leaving, me))

#define acknowledged(q) ((q) == me || !has(lnk[me], q) || !answers(me, q) || owed[at(me, q)] == 0)
#if N == 3
#define allAcknowledged (acknowledged(0) && acknowledged(1) && acknowledged(2))
#else
#define allAcknowledged (acknowledged(0) && acknowledged(1) && acknowledged(2) && acknowledged(3))
#endif
#ifdef LEAVEFAST
#define mayGo true
#else
#define mayGo (allAcknowledged && ((unsaid[me] == 0) || (lnk[me] & answering(me)) == 0) && (noted[me] != 0 || answering(me) == 0))
#endif

#define NEXT(d) ((me + d) % N)
#define gives(q) nempty(c[at(q, me)])
#define falsely(q) (doubts > 0 && !over && asked(q))
#define ends(q) (!has(leaving, me) && has(missing[me], q) && quiet)
#define frees(q) ((held[at(me, q)] > 0 || has(waits[me], q)) && !isolated(me))
#define finds(q) (sees > 0 && !over && !has(leaving, me) && lostk[me] == 0 && cause[me] == 0 && pend[me] == 0 && has(dead & ~gone, q) && present(me, q))
#define step(q) (finds(q) || frees(q) || gives(q) || dials(q) || doubt(q) || falsely(q) || hear(q) || surplus(q) || ends(q))

/* One step at a time. Its result is applied at its end: found is a lost rank,
 * decided is a cause, source is the rank that sent it. */
proctype rank(byte me) {
	byte i, j, k, w, m, x, peer, source = me, found = N, decided = N;
	bool dying;
end:	do
	:: atomic {
		if
		:: runs(me) && step(NEXT(1)) -> peer = NEXT(1)
		:: runs(me) && step(NEXT(2)) -> peer = NEXT(2)
#if N == 4
		:: runs(me) && step(NEXT(3)) -> peer = NEXT(3)
#endif
		fi;
		if
		:: frees(peer) -> release(peer)
		:: gives(peer) -> receive(peer)
		:: dials(peer) -> dial(peer)
		:: doubt(peer) -> suspected[me] = suspected[me] | bit(peer)
		:: falsely(peer) -> doubts--; suspected[me] = suspected[me] | bit(peer)
		:: hear(peer) -> suspected[me] = suspected[me] & ~bit(peer)
		:: surplus(peer) -> put(me, peer, DROP); unlink(me, peer)
		:: finds(peer) -> sees--; report(peer, me)
		:: ends(peer) -> found = peer; guessed = guessed | bit(peer)
		fi;
tail:		if
		:: found != N -> learnLost(found, source)
		:: decided != N -> learnCause(decided, source)
		:: else
		fi;
		if :: !has(dead, me) -> rewant(me) :: else fi;
		peer = 0; source = me; found = N; decided = N }
	:: atomic { runs(me) && pend[me] != 0 && ((coordinator && confirmed(pend[me] - 1)) || (quiet && !isolated(me))) -> decided = pend[me] - 1; goto tail }
	:: atomic { runs(me) && reports > 0 && !over && me == REPORTER && !has(leaving, me) && cause[me] == 0 && pend[me] == 0 -> reports--; report(me, me); goto tail }
	:: atomic { runs(me) && flushes(me) -> flush() }
	:: atomic { runs(me) && leaves > 0 && !over && !has(leaving, me) && me == LEAVER ->
		leaves--;
		fault = true;
		flush();
		leaving = leaving | bit(me);
		uncovered[me] = 0;
		do
		:: i < N && has(lnk[me], i) -> owed[at(me, i)]++; put(me, i, BYE); i++
		:: i < N && !has(lnk[me], i) -> i++
		:: i >= N -> break
		od;
		i = 0;
		rewant(me) }
	:: atomic { runs(me) && has(leaving, me) && mayGo ->
		gone = gone | bit(me);
		if :: (dead | stopped | bit(me)) == ALL -> alone = alone | bit(me) :: else fi;
		die(me) }
	/* faults */
	:: atomic { !has(dead, me) && kills > 0 && !over && me == VICTIM -> kills--; fault = true; die(me) }
	:: atomic { runs(me) && stops > 0 && !over && SLEEPER -> stops--; fault = true; stopped = stopped | bit(me) }
#ifndef STAY
	:: atomic { has(stopped, me) && !over -> stopped = stopped & ~bit(me) }
#endif
	:: has(dead, me) -> break
	od
}

/* Connections that end while both ranks run, and the end of all faults. */
active proctype world() {
	byte p, q;
	do
	:: atomic { cuts > 0 && !over ->
		cuts--;
		fault = true;
		select(p : 0 .. (N - 1));
		select(q : 0 .. (N - 1));
		if
		:: p != q && has(lnk[p], q) && has(lnk[q], p) && !has(nosend[p], q) ->
			torn = torn | bit(p) | bit(q);
			/* messages in transit from p to q may be lost */
			if
			:: true
			:: do
				:: nempty(c[at(p, q)]) -> c[at(p, q)]?_
				:: empty(c[at(p, q)]) -> break
				od
			fi;
			put(p, q, END); put(q, p, END);
			nosend[p] = nosend[p] | bit(q);
			nosend[q] = nosend[q] | bit(p)
		:: else
		fi;
		p = 0; q = 0 }
	:: !over -> over = true
	:: timeout -> break
	od;
	/* (c) Nothing more happens. Every running rank knows everything. */
	atomic {
		p = 0;
		do
		:: p < N ->
			assert(!(runs(p) && has(leaving, p)));       /* Close returns */
			q = 0;
			do
			:: q < N && runs(p) ->
				assert(!has(dead, q) || has(lostk[p] | leftk[p], q));
				if :: runs(q) && (cause[q] != 0 || pend[q] != 0) -> assert(cause[p] != 0) :: else fi;
				/* (d) one cause, if the coordinator decided */
				if :: !fault && cause[q] != 0 -> assert(cause[p] == cause[q]) :: else fi;
				q++
			:: q >= N || !runs(p) -> break
			od;
			p++
		:: p >= N -> break
		od
	}
}

init {
	byte r = 1;
	atomic {
		want[0] = 1;
		do
		:: r < N ->
			lnk[0] = lnk[0] | bit(r); greeted[0] = greeted[0] | bit(r);
			lnk[r] = 1; greeted[r] = 1; made[r] = 1;
			want[r] = (r + 1) % N;
			r++
		:: r >= N -> break
		od;
		r = 0;
		do
		:: r < N -> run rank(r); r++
		:: r >= N -> break
		od
	}
}
