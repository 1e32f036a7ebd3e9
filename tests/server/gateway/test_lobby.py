"""The lobby: bounded, first come first gone."""

from server.gateway.lobby import Lobby


def test_there_is_room_up_to_the_limit() -> None:
    lobby: Lobby[str] = Lobby(2)
    assert [lobby.enter(guest) for guest in "ab"] == [None, None]
    assert (len(lobby), lobby.evicted) == (2, 0)


def test_the_one_that_waited_longest_goes() -> None:
    lobby: Lobby[int] = Lobby(3)
    assert [lobby.enter(guest) for guest in range(8)] == [None, None, None, 0, 1, 2, 3, 4]
    assert (len(lobby), lobby.evicted) == (3, 5)


def test_those_who_are_through_are_not_asked_to_go() -> None:
    lobby: Lobby[str] = Lobby(2)
    lobby.enter("a")
    lobby.enter("b")
    lobby.leave("a")
    assert lobby.enter("c") is None
    assert lobby.enter("d") == "b"
    assert len(lobby) == 2


def test_leaving_again_or_after_having_gone_does_nothing() -> None:
    lobby: Lobby[str] = Lobby(1)
    lobby.enter("a")
    assert lobby.enter("b") == "a"
    lobby.leave("a")
    lobby.leave("a")
    assert len(lobby) == 1
    lobby.leave("b")
    assert len(lobby) == 0


def test_a_crowd_in_the_lobby_never_keeps_out_who_comes_ready() -> None:
    lobby: Lobby[int] = Lobby(4)
    for guest in range(1000):
        gone = lobby.enter(guest)
        assert gone != guest
        if guest % 10 == 0:
            lobby.leave(guest)
        assert len(lobby) <= 4
