one: test.nop
two: test.succeed_with_changes
