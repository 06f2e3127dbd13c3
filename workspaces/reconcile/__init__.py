"""What puts right what a crash left: operations whose holder died, machines and rows that disagree, leftovers."""
