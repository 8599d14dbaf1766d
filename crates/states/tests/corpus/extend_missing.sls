extend:
  nowhere:
    test:
      - result: False
own: test.nop
