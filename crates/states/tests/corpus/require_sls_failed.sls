include:
  - inc.bad
after:
  test.nop:
    - require:
      - sls: inc.bad
