BEGIN TRANSACTION;
CREATE TABLE durations (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  sketch TEXT NOT NULL,
  PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  job_id TEXT NOT NULL,
  type TEXT NOT NULL,
  at REAL NOT NULL,
  job TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,'-','01JGGVSDV17YHX6N84HAQNK0AT','status',1.73573280342596292496e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.4254918}');
INSERT INTO "events" VALUES(2,'-','01JGGVSDV17YHX6N84HAQNK0AT','status',1.73573280342596292496e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26660","waited":0.0004711151123046875}');
INSERT INTO "events" VALUES(3,'-','01JGGVSDVSEYC3HT4KAMH4F642','status',1.73573280345757913591e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.4495294}');
INSERT INTO "events" VALUES(4,'-','01JGGVSDVSEYC3HT4KAMH4F642','status',1.73573280345757913591e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26660","waited":0.008049726486206055}');
INSERT INTO "events" VALUES(5,'-','01JGGVSDWGGABK1A9TSENMYS8M','status',1.73573280347820639614e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.4722571}');
INSERT INTO "events" VALUES(6,'-','01JGGVSDX218V4GMM92EYFS7XC','status',1.73573280349435210231e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.4903605}');
INSERT INTO "events" VALUES(7,'-','01JGGVSDY1SVQTM3M4TMN9P4WY','status',1.73573280352189087869e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":1735732803.521515}');
INSERT INTO "events" VALUES(8,'-','01JGGVSDV17YHX6N84HAQNK0AT','step',1.73573280369389414783e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26660","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSDV17YHX6N84HAQNK0AT','step',1.73573280369389414783e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26660","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(10,'-','01JGGVSDVSEYC3HT4KAMH4F642','status',1.73573280370317482943e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"5ae00e838c11e8b0bcd0abad7a578964","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.24559569358825684}');
INSERT INTO "events" VALUES(11,'-','01JGGVSDWGGABK1A9TSENMYS8M','status',1.73573280370317482943e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26660","waited":0.23091769218444824}');
INSERT INTO "events" VALUES(12,'-','01JGGVSDV17YHX6N84HAQNK0AT','step',1.73573280370317482943e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:26660","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(13,'-','01JGGVSDV17YHX6N84HAQNK0AT','step',1.73573280370317482943e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:26660","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(14,'-','01JGGVSDV17YHX6N84HAQNK0AT','status',1.73573280372263836863e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.296675443649292}');
INSERT INTO "events" VALUES(15,'-','01JGGVSDX218V4GMM92EYFS7XC','status',1.73573280372263836863e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26660","waited":0.23227787017822266}');
INSERT INTO "events" VALUES(16,'-','01JGGVSDX218V4GMM92EYFS7XC','status',1.73573280373272490501e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"a300a3a170f23613fd505d6198622d8b"},"seconds":0.010086536407470703}');
INSERT INTO "events" VALUES(17,'-','01JGGVSDY1SVQTM3M4TMN9P4WY','status',1.73573280373272490501e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:26660","waited":0.21121001243591309}');
INSERT INTO "events" VALUES(18,'-','01JGGVSDWGGABK1A9TSENMYS8M','status',1.73573280375879979132e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.055624961853027344}');
INSERT INTO "events" VALUES(19,'-','01JGGVSDY1SVQTM3M4TMN9P4WY','step',1.73573280376916527743e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:26660","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(20,'-','01JGGVSDY1SVQTM3M4TMN9P4WY','step',1.73573280376916527743e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:26660","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(21,'-','01JGGVSDY1SVQTM3M4TMN9P4WY','step',1.73573280377580976482e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:26660","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(22,'-','01JGGVSDY1SVQTM3M4TMN9P4WY','step',1.73573280377580976482e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:26660","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(23,'-','01JGGVSDY1SVQTM3M4TMN9P4WY','status',1.73573280378121137619e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"seconds":0.04848647117614746}');
INSERT INTO "events" VALUES(24,'-','01JGGVSE6D0K7QAJBHR5TE58YB','status',1.73573280379308342931e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.7898955}');
INSERT INTO "events" VALUES(25,'-','01JGGVSE6D0K7QAJBHR5TE58YB','status',1.73573280379308342931e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26660","waited":0.003187894821166992}');
INSERT INTO "events" VALUES(26,'-','01JGGVSE6D0K7QAJBHR5TE58YB','status',1.73573280381345796587e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735732946.3665297,"nextAttemptAt":1735732946.3665297,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"09c1e33eba0e3ba450095d843182c55d"},"failed":true}');
INSERT INTO "events" VALUES(27,'-','01JGGVSE7Z1GB68VBJSHR6FK7X','status',1.73573280384313654895e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSE8H5EPXQ57KNBP31Q1T','status',1.73573280386029291152e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSE8H5EPXQ57KNBP31Q1T','status',1.73573280386998558041e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','','queue',1.7357328038832268715e+09,'{"queue":"other","paused":true}');
INSERT INTO "events" VALUES(31,'-','01JGGVSE9RF8VJF7B9TE9HWNNR','status',1.73573280389720654482e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.8964834}');
INSERT INTO "events" VALUES(32,'-','01JGGVSEA2V1W0F57C1P3ZY36N','status',1.73573280390625739096e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.906094}');
INSERT INTO "events" VALUES(33,'-','01JGGVSEA2V1W0F57C1P3ZY36N','status',1.73573280390625739096e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26660","waited":0.0001633167266845703}');
INSERT INTO "events" VALUES(34,'-','01JGGVSEAB2H5C1HX8N19BK65N','status',1.73573280392743325237e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.9207122}');
INSERT INTO "events" VALUES(35,'-','01JGGVSEA2V1W0F57C1P3ZY36N','status',1.73573280392743325237e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26660"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSEAB2H5C1HX8N19BK65N','status',1.73573280392743325237e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26660","waited":0.006721019744873047}');
INSERT INTO "events" VALUES(37,'-','01JGGVSEAB2H5C1HX8N19BK65N','step',1.73573280394007182125e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26660","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(38,'-','01JGGVSEAB2H5C1HX8N19BK65N','step',1.73573280394007182125e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26660","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(39,'-','01JGGVSEABAYR8GDH2XJ1NE4GZ','status',1.73573280394007182125e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.9364767}');
INSERT INTO "events" VALUES(40,'-','01JGGVSEA2V1W0F57C1P3ZY36N','status',1.73573280394007182125e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26660"}');
INSERT INTO "events" VALUES(41,'-','01JGGVSEA2V1W0F57C1P3ZY36N','status',1.73573280395139360431e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(42,'-','01JGGVSEABAYR8GDH2XJ1NE4GZ','status',1.73573280395139360431e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26660","waited":0.01491689682006836}');
INSERT INTO "events" VALUES(43,'-','01JGGVSEABAYR8GDH2XJ1NE4GZ','step',1.73573280396815967556e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26660","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSEABAYR8GDH2XJ1NE4GZ','step',1.73573280396815967556e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26660","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(45,'-','01JGGVSECW506EH4K0BH01HPNC','status',1.73573280399703860281e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.996848}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
, search TEXT) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSDV17YHX6N84HAQNK0AT','-','{"number": 1}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSDVSEYC3HT4KAMH4F642','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSDWGGABK1A9TSENMYS8M','-','{"size": 10}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSDX218V4GMM92EYFS7XC','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSDY1SVQTM3M4TMN9P4WY','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSE6D0K7QAJBHR5TE58YB','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSE7Z1GB68VBJSHR6FK7X','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSE8H5EPXQ57KNBP31Q1T','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSE9RF8VJF7B9TE9HWNNR','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSEA2V1W0F57C1P3ZY36N','-','{"number": 10, "seconds": 60}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSEAB2H5C1HX8N19BK65N','-','{"number":10,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSEABAYR8GDH2XJ1NE4GZ','-','{"number":11,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSECW506EH4K0BH01HPNC','-','{"number": 3}',NULL,NULL);
CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  version INTEGER NOT NULL,
  run INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  labels TEXT,
  run_at REAL,
  due REAL,
  deadline REAL,
  attempt INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  losses INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  owner TEXT,
  lease_until REAL,
  started_at REAL,
  next_attempt_at REAL,
  cancel_asked_at REAL,
  finished_at REAL,
  keep REAL,
  expires_at REAL,
  result TEXT,
  result_file TEXT,
  error TEXT,
  progress TEXT,
  steps TEXT,
  files TEXT,
  parent TEXT,
  children TEXT,
  waiting_for TEXT,
  trace_id TEXT,
  -- 1: due and waiting for a worker; claims read only these rows
  ready INTEGER NOT NULL DEFAULT 0
, lease_seconds REAL, loss_record TEXT, overdue_at REAL, webhook TEXT, concurrency_key TEXT, tracestate TEXT);
INSERT INTO "jobs" VALUES(1,'01JGGVSDV17YHX6N84HAQNK0AT','work','default',1.73573280342549180984e+09,1.73573280372263836863e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280342596292496e+09,NULL,NULL,1.73573280372263836863e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732803.6938941,"finished_at":1735732803.6938941},{"name":"second","status":"DONE","started_at":1735732803.7031748,"finished_at":1735732803.7031748}]',NULL,NULL,NULL,NULL,'593886851404db4ab464776751720700',0,30.0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'01JGGVSDVSEYC3HT4KAMH4F642','half','default',1.73573280344952940944e+09,1.73573280370317482943e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280345757913591e+09,NULL,NULL,1.73573280370317482943e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"5ae00e838c11e8b0bcd0abad7a578964","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'5ae00e838c11e8b0bcd0abad7a578964',0,30.0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'01JGGVSDWGGABK1A9TSENMYS8M','paint','default',1.73573280347225713735e+09,1.73573280375879979132e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280370317482943e+09,NULL,NULL,1.73573280375879979132e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSDWGGABK1A9TSENMYS8M/1.c13bfa33/picture.bin"}]',NULL,NULL,NULL,'efb9e5e5aa15e507a4d92d5fc9a06b3a',0,30.0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'01JGGVSDX218V4GMM92EYFS7XC','fail','default',1.73573280349036049839e+09,1.73573280373272490501e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280372263836863e+09,NULL,NULL,1.73573280373272490501e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"a300a3a170f23613fd505d6198622d8b"}',NULL,NULL,NULL,NULL,NULL,NULL,'a300a3a170f23613fd505d6198622d8b',0,30.0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'01JGGVSDY1SVQTM3M4TMN9P4WY','work','default',1.73573280352151489256e+09,1.73573280378121137619e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280373272490501e+09,NULL,NULL,1.73573280378121137619e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732803.7691653,"finished_at":1735732803.7691653},{"name":"second","status":"DONE","started_at":1735732803.7758098,"finished_at":1735732803.7758098}]',NULL,NULL,NULL,NULL,'78d1f54a008341ef700a7ac38efde565',0,30.0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(6,'01JGGVSE6D0K7QAJBHR5TE58YB','heal','default',1.73573280378989553448e+09,1.73573280381345796587e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573294636652970313e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280379308342931e+09,1.73573294636652970313e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"09c1e33eba0e3ba450095d843182c55d"}',NULL,NULL,NULL,NULL,NULL,NULL,'09c1e33eba0e3ba450095d843182c55d',0,30.0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(7,'01JGGVSE7Z1GB68VBJSHR6FK7X','work','default',1.73573280383989715569e+09,1.73573280383989715569e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'078812465607362f7d717765f4e50310',0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSE8H5EPXQ57KNBP31Q1T','work','default',1.7357328038577501774e+09,1.73573280386998558041e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280386998558041e+09,1.73573280386998558041e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'84a2d5392f40f3e640727893767742f0',0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSE9RF8VJF7B9TE9HWNNR','rest','other',1.73573280389648342131e+09,1.73573280389648342131e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280389648342131e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'8c7bb2ebbfdb00b45af7780034c77cee',1,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSEA2V1W0F57C1P3ZY36N','family','default',1.73573280390609407421e+09,1.73573280395139360431e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280390625739096e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSEAB2H5C1HX8N19BK65N","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSEABAYR8GDH2XJ1NE4GZ","kind":"work","key":"work#2","status":null}]','["01JGGVSEAB2H5C1HX8N19BK65N","01JGGVSEABAYR8GDH2XJ1NE4GZ"]','df74dd37331086da43d58106db9942d7',0,30.0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(11,'01JGGVSEAB2H5C1HX8N19BK65N','work','default',1.73573280392071223254e+09,1.73573280394007182125e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:26660',1.73573283392743325228e+09,1.73573280392743325237e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732803.9400718,"finished_at":1735732803.9400718}]',NULL,'01JGGVSEA2V1W0F57C1P3ZY36N',NULL,NULL,'df74dd37331086da43d58106db9942d7',0,30.0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(12,'01JGGVSEABAYR8GDH2XJ1NE4GZ','work','default',1.73573280393647670746e+09,1.73573280396815967556e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:26660',1.7357328339513936043e+09,1.73573280395139360431e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732803.9681597,"finished_at":1735732803.9681597}]',NULL,'01JGGVSEA2V1W0F57C1P3ZY36N',NULL,NULL,'df74dd37331086da43d58106db9942d7',0,30.0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(13,'01JGGVSECW506EH4K0BH01HPNC','work','default',1.73573280399684810645e+09,1.73573280399684810645e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280399684810645e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'33367244e8fc8615e03d72c9bca4fbb3',1,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSDY1SVQTM3M4TMN9P4WY',1.73573280352189087869e+09);
CREATE TABLE log_state (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "log_state" VALUES('epoch','e2c2b396');
INSERT INTO "log_state" VALUES('floor','0');
CREATE TABLE queues (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  paused INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
INSERT INTO "queues" VALUES('-','other',1);
CREATE TABLE records (
  tenant TEXT NOT NULL,
  collection TEXT NOT NULL,
  name TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (tenant, collection, name)
) WITHOUT ROWID;
CREATE TABLE rollups (
  tenant TEXT NOT NULL,
  span INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (tenant, span, at, kind, queue, name)
) WITHOUT ROWID;
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','failed:BROKEN',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','run.14',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','wait.32',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','partial',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','run.32',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','wait.13',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','wait.7',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','done',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','run.24',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','wait.32',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'rest','other','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','cancelled',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','done',2);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','run.23',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','run.33',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','started',4);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.0:first',4);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.0:second',2);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','submitted',7);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.11',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.16',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.31',1);
CREATE TABLE search_backfill (after TEXT NOT NULL, last TEXT NOT NULL);
CREATE TABLE search_terms (
  tenant TEXT NOT NULL,
  value TEXT NOT NULL,
  field TEXT NOT NULL, -- label.KEY, step or input.PATH
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  job_id TEXT NOT NULL,
  PRIMARY KEY (tenant, value, field, kind, queue, job_id)
) WITHOUT ROWID;
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSDY1SVQTM3M4TMN9P4WY');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSE7Z1GB68VBJSHR6FK7X');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSE8H5EPXQ57KNBP31Q1T');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSDV17YHX6N84HAQNK0AT');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSDY1SVQTM3M4TMN9P4WY');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSEAB2H5C1HX8N19BK65N');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSEABAYR8GDH2XJ1NE4GZ');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSDV17YHX6N84HAQNK0AT');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSDY1SVQTM3M4TMN9P4WY');
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  result TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;
INSERT INTO "steps" VALUES('01JGGVSDV17YHX6N84HAQNK0AT','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280369389414783e+09);
INSERT INTO "steps" VALUES('01JGGVSDV17YHX6N84HAQNK0AT','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280370317482943e+09);
INSERT INTO "steps" VALUES('01JGGVSDY1SVQTM3M4TMN9P4WY','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280376916527743e+09);
INSERT INTO "steps" VALUES('01JGGVSDY1SVQTM3M4TMN9P4WY','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280377580976482e+09);
INSERT INTO "steps" VALUES('01JGGVSEAB2H5C1HX8N19BK65N','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280394007182125e+09);
INSERT INTO "steps" VALUES('01JGGVSEABAYR8GDH2XJ1NE4GZ','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280396815967556e+09);
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO "store_id" VALUES('3216703ad8da5c84122dc65224abd94a');
CREATE TABLE tombstones (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE upload_uses (
  upload_id TEXT NOT NULL,
  job_id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  PRIMARY KEY (upload_id, job_id)
) WITHOUT ROWID;
CREATE TABLE uploads (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  replica TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  updated_at REAL NOT NULL,
  expires_at REAL,
  record TEXT NOT NULL,
  -- the job that it creates; a separate column, because it is written once
  submission TEXT
, reserved INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "uploads" VALUES('01JGGVSDPYMNEJ4VXHD1JXQT4H','-','DONE','host',10,1.73573280331330728528e+09,4.73573280331330680832e+09,'{"id":"01JGGVSDPYMNEJ4VXHD1JXQT4H","way":"tus","name":"file","created_at":1735732803.294905,"updated_at":1735732803.3133073,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","past_service":false,"size":10,"received":10,"promised":null,"expires_at":4735732803.313307,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSDPYMNEJ4VXHD1JXQT4H/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,0);
INSERT INTO "uploads" VALUES('01JGGVSDRPAFJYHFRTCM26PQQZ','-','UPLOADING','host',10,1.73573280340818428997e+09,4.73573280340611362437e+09,'{"id":"01JGGVSDRPAFJYHFRTCM26PQQZ","way":"tus","name":"file","created_at":1735732803.3508883,"updated_at":1735732803.4081843,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","past_service":false,"size":20,"received":10,"promised":null,"expires_at":4735732803.406114,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,10);
CREATE TABLE write_check (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL
);
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0 AND due IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);
CREATE INDEX tombstones_at ON tombstones (at);
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX uploads_unfinished ON uploads (replica, updated_at) WHERE status = 'UPLOADING';
CREATE INDEX upload_uses_job ON upload_uses (job_id);
CREATE INDEX events_job ON events (tenant, job_id, id);
CREATE INDEX events_tenant ON events (tenant, id);
CREATE INDEX events_kept ON events (at) WHERE type IN ('deleted', 'queue');
CREATE INDEX jobs_facets ON jobs (tenant, status, kind, queue, id);
CREATE INDEX jobs_code ON jobs (tenant, json_extract(error, '$.code'), status, kind, queue, id) WHERE error IS NOT NULL;
CREATE INDEX jobs_longest ON jobs (tenant, status, kind, queue, finished_at - started_at, id) WHERE finished_at - started_at >= 0.01;
CREATE INDEX uploads_tenant ON uploads (tenant, status, id);
CREATE INDEX jobs_claim ON jobs (queue, kind, tenant,
  (CASE WHEN run > 1 THEN due ELSE max(created_at, coalesce(run_at, 0)) END - 3600.0 * priority)) WHERE ready = 1;
CREATE INDEX jobs_concurrency ON jobs (concurrency_key) WHERE concurrency_key IS NOT NULL AND lease_until IS NOT NULL;
CREATE INDEX jobs_blocked ON jobs (concurrency_key,
  (CASE WHEN run > 1 THEN due ELSE max(created_at, coalesce(run_at, 0)) END - 3600.0 * priority)) WHERE ready = 2;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',45);
COMMIT;
