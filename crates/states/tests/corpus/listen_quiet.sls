listener:
  test.nop:
    - listen:
      - test: same
same: test.nop
