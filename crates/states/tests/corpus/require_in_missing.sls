one:
  test.nop:
    - require_in:
      - test: nowhere
