package waitq

import (
	"testing"
)

// mutants are the rules of the package comment, each broken in one way.
var mutants = []struct {
	name   string
	change func(*rules)
}{
	// Order
	{"a flow is not first come first served", func(r *rules) { r.fifo = false }},
	{"of equal tags the newer goes first", func(r *rules) { r.olderInTie = false }},
	{"tags are made on arrival", func(r *rules) { r.tagsAtHead = false }},
	{"a new flow starts at 0", func(r *rules) { r.startAtV = false }},
	{"a flow that leaves does not raise the virtual time", func(r *rules) { r.leaverMovesV = false }},
	{"a grant in order does not move the virtual time", func(r *rules) { r.orderMovesV = false }},
	{"a pass moves the virtual time", func(r *rules) { r.passesMoveV = true }},
	{"a pass is not charged to its flow", func(r *rules) { r.passesCharge = false }},
	{"weights are ignored", func(r *rules) { r.weights = false }},
	// Share
	{"an aged grant owes twice its cost", func(r *rules) { r.share = 2 }},
	{"an aged grant owes four times its cost", func(r *rules) { r.share = 4 }},
	{"a debt is not paid off", func(r *rules) { r.repay = false }},
	{"turns are saved up", func(r *rules) { r.noCredit = false }},
	{"a debt outlives the queue", func(r *rules) { r.forgive = false }},
	{"a pass owes as an aged grant does", func(r *rules) { r.passesAreFree = false }},
	{"classes that do not wait are owed too", func(r *rules) { r.debtToStanding = false }},
	{"the share holds only against the top class", func(r *rules) { r.everyBoundary = false }},
	{"one step is enough for two ranks", func(r *rules) { r.rankPerStep = false }},
	{"an aged turn does not lapse", func(r *rules) { r.turnsLapse = false }},
	// Room
	{"one grant may pass", func(r *rules) { r.passes = 1 }},
	{"three grants may pass", func(r *rules) { r.passes = 3 }},
	{"a pinned head can be displaced as head", func(r *rules) { r.pins = false }},
	{"a head is pinned where there is no room at all", func(r *rules) { r.pinWithRoom = false }},
	{"the lowest class passes first", func(r *rules) { r.highestPasses = false }},
	{"the exact first that fits passes", func(r *rules) { r.roundUp = false }},
	{"only the first of a flow may pass", func(r *rules) { r.middle = false }},
	{"a cost above the limit is charged in full", func(r *rules) { r.capCharge = false }},
	{"class limits are ignored", func(r *rules) { r.classLimits = false }},
	// Full queue
	{"the oldest is displaced", func(r *rules) { r.newest = false }},
	{"the highest class below gives way", func(r *rules) { r.lowestGivesWay = false }},
	{"an aged waiter gives way", func(r *rules) { r.agedStay = false }},
	{"an aged flow keeps its places whatever its length", func(r *rules) { r.agedCompete = false }},
	{"the newcomer's own flow is not counted", func(r *rules) { r.ownQueued = false }},
	{"the newcomer's own cost is not counted", func(r *rules) { r.ownCost = false }},
	{"as much is enough to give way", func(r *rules) { r.strictly = false }},
	{"the shortest flow gives way", func(r *rules) { r.longestFlow = false }},
	{"queued cost is not compared per weight", func(r *rules) { r.perWeight = false }},
	{"the newcomer's own flow gives way", func(r *rules) { r.ownFlowStays = false }},
	{"what waiters hold is not bounded", func(r *rules) { r.boundHeld = false }},
	{"a newcomer displaces as many as it takes", func(r *rules) { r.onePlace = false }},
	{"a newcomer needs a place even to start at once", func(r *rules) { r.atOnce = false }},
	// Bounds of a flow
	{"the waiters of a flow are not bounded", func(r *rules) { r.flowWait = false }},
	{"the cost of a flow is not bounded", func(r *rules) { r.flowCost = false }},
	{"a flow has its bounds in each class anew", func(r *rules) { r.flowClasses = false }},
	{"others give way to who belongs to a full flow", func(r *rules) { r.flowFirst = false }},
	{"nobody gives way in a full flow", func(r *rules) { r.flowGivesWay = false }},
	{"in a full flow an aged waiter gives way", func(r *rules) { r.flowAgedStay = false }},
	{"a full flow is called a full queue", func(r *rules) { r.flowFull = false }},
	// Reserve
	{"the reserve is ignored", func(r *rules) { r.reserves = false }},
	{"a reserve may be the whole limit", func(r *rules) { r.reserveClamped = false }},
	{"leases of class 0 count against the reserve", func(r *rules) { r.reserveLower = false }},
	{"a turn runs out while its class is shut out", func(r *rules) { r.keepStanding = false }},
	// Tickets
	{"a ticket is an arrival like any other", func(r *rules) { r.tickets = false }},
	{"a ticket goes to the end of its flow", func(r *rules) { r.ticketInFlow = false }},
	{"a ticket ages from when it came back", func(r *rules) { r.ticketAges = false }},
	{"of equal tags a ticket's is the newer", func(r *rules) { r.ticketInTie = false }},
	{"a ticket's time begins anew", func(r *rules) { r.ticketExpires = false }},
	{"who came back last is the newest", func(r *rules) { r.ticketNewest = false }},
	{"a ticket whose time is over may not start", func(r *rules) { r.ticketAtOnce = false }},
	// Pause
	{"a pause is ignored", func(r *rules) { r.pauses = false }},
	{"a pause ends after its end, not at it", func(r *rules) { r.pauseExact = false }},
	{"a pause can be cut short by another", func(r *rules) { r.pauseGrows = false }},
	{"a turn runs out during a pause", func(r *rules) { r.pauseKeeps = false }},
	// Position
	{"higher classes do not stand before one", func(r *rules) { r.placeAbove = false }},
	{"lower classes stand before one", func(r *rules) { r.placeBelow = false }},
	{"those before it in its flow do not count", func(r *rules) { r.placeOwn = false }},
	{"every flow stands before one", func(r *rules) { r.placeFlows = false }},
	{"the pinned waiter stands where its flow does", func(r *rules) { r.placePin = false }},
	// Leaving
	{"time is over after the timeout, not at it", func(r *rules) { r.expireExact = false }},
	{"those whose time is over keep their places from a newcomer", func(r *rules) { r.expireFirst = false }},
	{"nobody is hopeless", func(r *rules) { r.hopeless = false }},
	{"a hopeless newcomer may queue", func(r *rules) { r.askOnArrival = false }},
	{"a hopeless waiter may start", func(r *rules) { r.askAtTurn = false }},
	{"a deadline is over after it, not at it", func(r *rules) { r.deadlineExact = false }},
}

// TestMutants proves that TestModel would notice if the queue broke a rule: a
// model that breaks it differs from the queue in some history. It looks at
// outcomes alone, as callers do: a rule that only shows in the queue's own state
// would not be worth having.
func TestMutants(t *testing.T) {
	const histories = 3000
	for _, mutant := range mutants {
		r := theRules()
		mutant.change(&r)
		agrees := func(seed uint64) bool {
			p := newPair(randomTape(seed), r, costs)
			p.blind = true
			return p.run() == nil
		}
		seed := uint64(0)
		for seed < histories && agrees(seed) {
			seed++
		}
		if seed == histories {
			t.Errorf("%d histories do not notice that %s", histories, mutant.name)
		}
		t.Logf("noticed by history %d: %s", seed, mutant.name)
	}
}
